//! When the agent wants to be woken, and what for.

use std::time::Instant;

/// A reason to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// Say that we live; see whether the launcher does.
    Beat,
    /// A worker's streams should have ended by now.
    Held(usize),
    /// Processes that a worker left behind had time to end by themselves.
    Linger(usize),
    /// What a worker left behind had its grace.
    Sweep(usize),
    /// Workers that nobody supervises had their grace.
    Orphaned,
    /// Look whether workers that import torch have met.
    Group,
    /// The shim was told to kill everything: look whether it is stopped.
    Killing,
    /// Look whether everything that a dead shim left is gone.
    Bury,
}

/// At most one time for each reason.
#[derive(Default)]
pub(super) struct Alarms(Vec<(Instant, Alarm)>);

impl Alarms {
    /// Replaces an earlier wish for the same.
    pub(super) fn set(&mut self, at: Instant, alarm: Alarm) {
        self.0.retain(|(_, other)| *other != alarm);
        self.0.push((at, alarm));
    }

    /// The earliest.
    pub(super) fn next(&self) -> Instant {
        self.0.iter().map(|(at, _)| *at).min().expect("the beat never stops")
    }

    /// The workers of this epoch are gone, and whatever was to be done about them.
    pub(super) fn forget_workers(&mut self) {
        let is_of_workers = |alarm: &Alarm| match alarm {
            Alarm::Held(_) | Alarm::Linger(_) | Alarm::Sweep(_) | Alarm::Group | Alarm::Killing => {
                true
            }
            Alarm::Beat | Alarm::Orphaned | Alarm::Bury => false,
        };
        self.0.retain(|(_, alarm)| !is_of_workers(alarm));
    }

    /// Takes one whose time has come, with the time.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Alarm)> {
        let index = self.0.iter().position(|(at, _)| *at <= now)?;
        Some(self.0.swap_remove(index))
    }
}

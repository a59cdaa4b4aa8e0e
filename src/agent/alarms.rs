//! When the agent wants to be woken, and what for.

use std::time::Instant;

/// A reason to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// Say that we live; see whether the launcher does.
    Beat,
    /// A worker's streams should have ended by now.
    Held(usize),
    /// What a worker left behind had its grace.
    Sweep(usize),
    /// Workers that nobody supervises had their grace.
    Orphaned,
    /// Look whether workers that import torch have met.
    Group,
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
        self.0
            .retain(|(_, alarm)| !matches!(alarm, Alarm::Held(_) | Alarm::Sweep(_) | Alarm::Group));
    }

    /// Takes one whose time has come, with the time.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Alarm)> {
        let index = self.0.iter().position(|(at, _)| *at <= now)?;
        Some(self.0.swap_remove(index))
    }
}

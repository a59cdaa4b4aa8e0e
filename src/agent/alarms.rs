//! When the agent wants to be woken, and what for.

use std::time::Instant;

/// A reason to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
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
pub(super) struct Timers(Vec<(Instant, Timer)>);

impl Timers {
    /// Replaces an earlier wish for the same.
    pub(super) fn set(&mut self, at: Instant, alarm: Timer) {
        self.0.retain(|(_, other)| *other != alarm);
        self.0.push((at, alarm));
    }

    /// The earliest.
    pub(super) fn next(&self) -> Instant {
        self.0.iter().map(|(at, _)| *at).min().expect("the beat never stops")
    }

    /// The workers of this epoch are gone, and whatever was to be done about them.
    pub(super) fn forget_workers(&mut self) {
        let is_of_workers = |alarm: &Timer| match alarm {
            Timer::Held(_) | Timer::Linger(_) | Timer::Sweep(_) | Timer::Group | Timer::Killing => {
                true
            }
            Timer::Beat | Timer::Orphaned | Timer::Bury => false,
        };
        self.0.retain(|(_, alarm)| !is_of_workers(alarm));
    }

    /// Takes one whose time has come, with the time.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        let index = self.0.iter().position(|(at, _)| *at <= now)?;
        Some(self.0.swap_remove(index))
    }
}

//! Timers of the agent: when it wakes up, and for what.

use std::time::Instant;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Send a heartbeat, and check the launcher's.
    Beat,
    /// The streams of a worker that ended should have ended by now.
    Held(usize),
    /// The processes that a worker left behind have had time to end by themselves.
    Linger(usize),
    /// The grace period of the processes that a worker left behind is over.
    Sweep(usize),
    /// The grace period of workers without a launcher is over.
    Orphaned,
    /// Check whether workers that import torch have connected to each other.
    Group,
    /// The shim was told to kill everything: check whether it is stopped.
    Killing,
    /// Check whether all processes that a shim left when it exited are gone.
    Bury,
}

/// The timers: at most one time for each purpose.
#[derive(Default)]
pub(super) struct Timers(Vec<(Instant, Timer)>);

impl Timers {
    /// Sets a timer; an earlier time for the same purpose is replaced.
    pub(super) fn set(&mut self, at: Instant, alarm: Timer) {
        self.0.retain(|(_, other)| *other != alarm);
        self.0.push((at, alarm));
    }

    /// Returns the time of the earliest timer.
    pub(super) fn next(&self) -> Instant {
        self.0.iter().map(|(at, _)| *at).min().expect("the beat never stops")
    }

    /// Removes the timers that concern the workers of this epoch, which are gone.
    pub(super) fn forget_workers(&mut self) {
        let is_of_workers = |alarm: &Timer| match alarm {
            Timer::Held(_) | Timer::Linger(_) | Timer::Sweep(_) | Timer::Group | Timer::Killing => {
                true
            }
            Timer::Beat | Timer::Orphaned | Timer::Bury => false,
        };
        self.0.retain(|(_, alarm)| !is_of_workers(alarm));
    }

    /// Removes one timer that is due and returns it with its time.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        let index = self.0.iter().position(|(at, _)| *at <= now)?;
        Some(self.0.swap_remove(index))
    }
}

//! Timers of the agent: when it wakes up, and for what.

use std::time::Instant;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Send a heartbeat, and check the heartbeats of launcher and shim.
    Heartbeat,
    /// Stop waiting for the streams of the worker with this index, which has exited.
    HeldStream(usize),
    /// Terminate the processes that this worker left behind, unless they are busy.
    Linger(usize),
    /// Kill the processes that this worker left behind: their grace period is over.
    KillLeftovers(usize),
    /// Kill all workers: the grace period after the loss of the launcher is over.
    KillWorkers,
    /// Check whether workers that import torch have connected to each other.
    GroupCheck,
    /// Check whether the shim, which was asked to kill everything, is stopped.
    KillCheck,
    /// Kill and reap the processes that the shim left when it exited.
    Reap,
}

/// The timers: at most one time for each purpose.
#[derive(Default)]
pub(super) struct Timers(Vec<(Instant, Timer)>);

impl Timers {
    /// Sets a timer; an earlier time for the same purpose is replaced.
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.retain(|(_, other)| *other != timer);
        self.0.push((at, timer));
    }

    /// Returns the time of the earliest timer.
    pub(super) fn next(&self) -> Instant {
        self.0.iter().map(|(at, _)| *at).min().expect("the heartbeat timer is always set")
    }

    /// Removes the timers of the workers of this epoch, which have exited.
    pub(super) fn forget_workers(&mut self) {
        let is_of_workers = |timer: &Timer| match timer {
            Timer::HeldStream(_)
            | Timer::Linger(_)
            | Timer::KillLeftovers(_)
            | Timer::GroupCheck
            | Timer::KillCheck => true,
            Timer::Heartbeat | Timer::KillWorkers | Timer::Reap => false,
        };
        self.0.retain(|(_, timer)| !is_of_workers(timer));
    }

    /// Removes one timer that is due and returns it with its time.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        let index = self.0.iter().position(|(at, _)| *at <= now)?;
        Some(self.0.swap_remove(index))
    }
}

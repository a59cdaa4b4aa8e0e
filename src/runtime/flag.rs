//! Counters in shared memory on which ranks wait, first by spinning, then by sleeping.

use std::time::Duration;

use crate::os::atomic::Ordering::{Acquire, SeqCst};
use crate::os::atomic::{AtomicU32, spin_loop, yield_now};
use crate::os::memory;

/// A counter that one rank raises and others wait for; it wraps.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Flag {
    value: AtomicU32,
    sleepers: AtomicU32,
}

/// Number of polls before a waiting thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spin {
    /// Polls with a pause instruction between them, for a peer that is running.
    pub(crate) pauses: u32,
    /// Polls that yield the processor between them, for a peer that waits for one.
    pub(crate) yields: u32,
}

impl Spin {
    /// Polls of a thread that has nothing else to do.
    pub(crate) fn for_ranks(local_world: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Offering the processor early costs nothing when no other thread wants it. On a machine that others
        // use too, 2000 pauses made a meeting take 46 µs, 200 of them 5 to 10.
        if local_world <= cores {
            Self { pauses: 200, yields: 200 }
        } else {
            Self { pauses: 20, yields: 100 }
        }
    }

    /// Polls of a thread that runs beside a computing one.
    pub(crate) const BRIEF: Self = Self { pauses: 100, yields: 2 };
}

/// Longest sleep; bounds the delay of an alarm that did not wake the sleeper.
const SLEEP: Duration = Duration::from_millis(20);
/// Longest sleep of a thread that has work beside waiting.
const NAP: Duration = Duration::from_micros(200);

impl Flag {
    /// Whether the counter has reached `target`.
    pub(crate) fn has_reached(&self, target: u32) -> bool {
        reached(self.value.load(Acquire), target)
    }

    /// Sets the counter; only its owner calls this.
    pub(crate) fn raise(&self, value: u32) {
        // Sequentially consistent on both sides: either this rank sees the sleeper, or the sleeper
        // sees the value.
        self.value.store(value, SeqCst);
        if self.sleepers.load(SeqCst) != 0 {
            memory::futex_wake_all(&self.value);
        }
    }

    /// Waits until the counter has reached `target`, or `check`, which is called now and then,
    /// fails.
    pub(crate) fn wait<E>(
        &self,
        target: u32,
        spin: Spin,
        check: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.wait_working(target, spin, || Ok(false), check)
    }

    /// Waits as [`Self::wait`] does, and calls `work` as long as it returns that there is more.
    pub(crate) fn wait_working<E>(
        &self,
        target: u32,
        spin: Spin,
        mut work: impl FnMut() -> Result<bool, E>,
        mut check: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if self.spin(target, spin) {
            return Ok(());
        }
        loop {
            let limit = if work()? { NAP } else { SLEEP };
            self.sleep(target, limit);
            if self.has_reached(target) {
                return Ok(());
            }
            if let Err(reason) = check() {
                // The rank may have raised the flag and left between the two polls.
                return if self.has_reached(target) { Ok(()) } else { Err(reason) };
            }
        }
    }

    /// Wakes all sleeping ranks, so that they check for an alarm.
    pub(crate) fn wake(&self) {
        memory::futex_wake_all(&self.value);
    }

    fn spin(&self, target: u32, spin: Spin) -> bool {
        for _ in 0..spin.pauses {
            if self.has_reached(target) {
                return true;
            }
            spin_loop();
        }
        for _ in 0..spin.yields {
            if self.has_reached(target) {
                return true;
            }
            yield_now();
        }
        self.has_reached(target)
    }

    fn sleep(&self, target: u32, limit: Duration) {
        // A sleeper that dies here leaves the count too high, which costs the flag's owner one
        // system call for each raise.
        self.sleepers.fetch_add(1, SeqCst);
        let seen = self.value.load(SeqCst);
        if !reached(seen, target) {
            memory::futex_wait(&self.value, seen, limit);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

fn reached(value: u32, target: u32) -> bool {
    0 <= value.wrapping_sub(target) as i32
}

//! Counters in shared memory on which ranks wait, first by spinning, then by sleeping.

use std::time::Duration;

use crate::os::atomic::Ordering::{Acquire, SeqCst};
use crate::os::atomic::{AtomicU32, spin_loop, yield_now};
use crate::os::cpu::memory;
use crate::runtime::comm::core::spin::Spin;

/// Counter in shared memory that one rank raises and others wait for; it wraps.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Flag {
    value: AtomicU32,
    sleepers: AtomicU32,
}

/// Longest sleep; limits the delay of an abort that did not wake the sleeper.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Longest sleep of a thread that continues transfers while it waits.
const BUSY_SLEEP_MAX: Duration = Duration::from_micros(200);

impl Flag {
    /// Whether the counter has reached `target`.
    #[inline]
    pub(crate) fn has_reached(&self, target: u32) -> bool {
        reached(self.value.load(Acquire), target)
    }

    /// Sets the counter; only its owner calls this.
    #[inline]
    pub(crate) fn raise(&self, value: u32) {
        // Sequentially consistent on both sides: either this rank sees the sleeper, or the sleeper
        // sees the value.
        self.value.store(value, SeqCst);
        if self.sleepers.load(SeqCst) != 0 {
            memory::futex_wake_all(&self.value);
        }
    }

    /// Waits until the counter has reached `target`, or until `check` fails, which is called from
    /// time to time.
    pub(crate) fn wait<E>(
        &self,
        target: u32,
        spin: Spin,
        check: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.wait_with_progress(target, spin, || Ok(false), check)
    }

    /// Waits like [`Self::wait`], and calls `work` as long as it returns true.
    pub(crate) fn wait_with_progress<E>(
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
            let max = if work()? { BUSY_SLEEP_MAX } else { SLEEP_MAX };
            self.sleep(target, max);
            if self.has_reached(target) {
                return Ok(());
            }
            if let Err(reason) = check() {
                // The rank may have raised the flag and left between the two polls.
                return if self.has_reached(target) { Ok(()) } else { Err(reason) };
            }
        }
    }

    /// Wakes all sleeping ranks, so that they check for an abort.
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
        let mut yielding = spin.yielding();
        loop {
            if self.has_reached(target) {
                return true;
            }
            if !yielding.next(yield_now) {
                return false;
            }
        }
    }

    fn sleep(&self, target: u32, max: Duration) {
        // A process that is killed here leaves the count too high, which costs the flag's owner one
        // system call for each raise.
        self.sleepers.fetch_add(1, SeqCst);
        let seen = self.value.load(SeqCst);
        if !reached(seen, target) {
            memory::futex_wait(&self.value, seen, max);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

#[inline]
fn reached(value: u32, target: u32) -> bool {
    0 <= value.wrapping_sub(target) as i32
}

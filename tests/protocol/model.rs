//! Loom's atomics and sleeping, under the names of `os`.

pub(crate) mod atomic {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::thread::yield_now;

    use loom::sync::atomic::fence;

    /// Loom treats a `SeqCst` access as `AcqRel` and models `SeqCst` for fences only: so every such
    /// access has a fence here.
    #[derive(Default)]
    pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            fence_if(order);
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.0.store(value, order);
            fence_if(order);
        }

        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            let before = self.0.fetch_add(value, order);
            fence_if(order);
            before
        }

        pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
            let before = self.0.fetch_sub(value, order);
            fence_if(order);
            before
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u32,
            new: u32,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u32, u32> {
            self.0.compare_exchange(current, new, success, failure)
        }
    }

    fn fence_if(order: Ordering) {
        if order == Ordering::SeqCst {
            fence(order);
        }
    }
}

pub(crate) mod memory {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use super::atomic::{AtomicU32, Ordering};

    loom::lazy_static! {
        /// Model of the kernel: one lock for comparing and falling asleep, and for waking.
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// Sleeps until the next wake-up; the time limit is ignored.
    pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _limit: Duration) {
        let guard = SLEEPERS.0.lock().unwrap();
        if word.load(Ordering::SeqCst) == expected {
            drop(SLEEPERS.1.wait(guard).unwrap());
        }
    }

    pub(crate) fn futex_wake_all(_word: &AtomicU32) {
        let _guard = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
    }
}

//! Number of polls before a waiting thread sleeps.

use std::time::{Duration, Instant};

use crate::base::clock;

/// Longest time in which a waiting thread yields the processor. On a machine without other load that many yields take
/// less. If they take more, other threads need the processor: a thread that yields then waits for its turn behind all of
/// them every time, whereas one that sleeps runs soon after it is woken.
const YIELD_TIME_MAX: Duration = Duration::from_micros(250);
/// Number of yields between two looks at the clock, after the first: that one tells whether a thread that computes has
/// had the processor.
const YIELDS_PER_LOOK: u32 = 8;

/// Number of polls before a waiting thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spin {
    /// Polls with a pause instruction between them, for a peer that is running.
    pub(crate) pauses: u32,
    /// Polls that yield the processor between them, for a peer that waits for one.
    pub(crate) yields: u32,
}

impl Spin {
    /// Polls of a rank that has a processor of its own. Yielding that early costs nothing if no other thread needs it:
    /// on a machine with other load, a barrier took 46 µs with 2000 pauses, and 5 to 10 µs with 200.
    const OWN_PROCESSOR: Self = Self { pauses: 200, yields: 200 };
    /// Polls of a rank that shares a processor with others.
    const SHARED_PROCESSOR: Self = Self { pauses: 20, yields: 100 };
    /// Polls of a thread that runs beside a computing one.
    pub(crate) const BRIEF: Self = Self { pauses: 100, yields: 2 };

    /// Polls of a thread that has nothing else to do.
    pub(crate) fn for_ranks(local_world: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if local_world <= cores { Self::OWN_PROCESSOR } else { Self::SHARED_PROCESSOR }
    }

    /// Polls of the communication thread of such a rank, whose caller may compute meanwhile. If it does not, the
    /// processor is free, and waking a thread that sleeps takes longer than the yields: column `started` of
    /// `scripts/bench torch` shows it. Where ranks share processors, others compute on them.
    pub(crate) fn beside_caller(self) -> Self {
        if self == Self::OWN_PROCESSOR { Self { pauses: 100, yields: 100 } } else { Self::BRIEF }
    }

    /// Begins to yield the processor between polls.
    pub(crate) fn yielding(self) -> Yielding {
        Yielding { left: self.yields, since: None }
    }
}

/// A thread that yields the processor between its polls, for a limited number of times and a limited time.
pub(crate) struct Yielding {
    left: u32,
    /// When it began.
    since: Option<Instant>,
}

impl Yielding {
    /// Yields the processor by this function; returns false once the thread should sleep instead.
    #[inline]
    pub(crate) fn next(&mut self, yield_now: impl FnOnce()) -> bool {
        if self.left == 0 {
            return false;
        }
        let looks = self.since.is_none() || self.left.is_multiple_of(YIELDS_PER_LOOK);
        let since = *self.since.get_or_insert_with(clock::now);
        yield_now();
        let is_long = looks && YIELD_TIME_MAX <= clock::now() - since;
        self.left = if is_long { 0 } else { self.left - 1 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_are_limited_in_number_and_time() {
        let count = |yields, pause| {
            let mut yielding = Spin { pauses: 0, yields }.yielding();
            let mut found = 0;
            while yielding.next(|| std::thread::sleep(pause)) {
                found += 1;
            }
            found
        };
        assert_eq!(count(0, Duration::ZERO), 0);
        assert!((1..=3).contains(&count(3, Duration::ZERO)));
        assert_eq!(count(100, YIELD_TIME_MAX), 1, "one yield took the whole time");
    }
}

//! Offset between the clock of a node and the launcher's clock. Pure.

use std::collections::VecDeque;

/// Number of newest round trips that are kept: clocks drift, so old ones are useless.
const SAMPLES_MAX: usize = 8;

/// Estimate of the clock offset of one node, in microseconds; the shortest round trip decides.
#[derive(Debug, Default)]
pub struct ClockOffset {
    samples: VecDeque<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Clock of the node minus clock of the launcher; the error is at most half of the round trip.
    offset_us: i64,
    round_trip_us: u64,
}

impl ClockOffset {
    /// Adds a sample: a request sent at `sent_us` was answered with the node's clock `clock_us`,
    /// and the answer was received at `received_us`.
    pub fn add(&mut self, sent_us: u64, clock_us: u64, received_us: u64) {
        let middle = u64::midpoint(sent_us, received_us);
        let offset_us = clock_us.wrapping_sub(middle) as i64;
        let round_trip_us = received_us.saturating_sub(sent_us);
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { offset_us, round_trip_us });
    }

    /// Converts a time of the node's clock to the launcher's clock.
    pub fn to_launcher_clock(&self, at_us: u64) -> u64 {
        let best = self.samples.iter().min_by_key(|sample| sample.round_trip_us);
        at_us.wrapping_sub(best.map_or(0, |sample| sample.offset_us) as u64)
    }
}

impl ClockOffset {
    /// Largest error of [`Self::to_launcher_clock`]; `None` before the first answer.
    pub fn error_us(&self) -> Option<u64> {
        self.samples.iter().map(|sample| sample.round_trip_us.div_ceil(2)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_prefers_shortest_round_trip() {
        let mut offset = ClockOffset::default();
        assert_eq!(offset.to_launcher_clock(7), 7);
        // The agent sent the first answer only after it had started; its clock is 1000 ahead.
        offset.add(100, 1_000 + 880, 900);
        assert_eq!(offset.to_launcher_clock(1_500), 120);
        offset.add(1_000, 2_010, 1_020);
        assert_eq!(offset.to_launcher_clock(1_500), 500);
        offset.add(2_000, 3_900, 4_000);
        assert_eq!(offset.to_launcher_clock(1_500), 500);
    }

    #[test]
    fn clock_offset_follows_drift() {
        let mut offset = ClockOffset::default();
        offset.add(0, 5, 10);
        for turn in 1..=SAMPLES_MAX as u64 {
            offset.add(turn * 1_000, turn * 1_000 + 50 + 10, turn * 1_000 + 20);
        }
        assert_eq!(offset.to_launcher_clock(1_050), 1_000);
    }

    proptest::proptest! {
        /// For any delays in either direction, the error is at most half of the best round trip.
        #[test]
        fn clock_offset_error_is_half_the_best_round_trip(
            ahead in -1_000_000i64..1_000_000,
            delays in proptest::collection::vec((0u64..10_000, 0u64..10_000), 1..SAMPLES_MAX),
        ) {
            let mut offset = ClockOffset::default();
            let start = 10_000_000u64;
            for (there, back) in &delays {
                let clock = (start + there).wrapping_add_signed(ahead);
                offset.add(start, clock, start + there + back);
            }
            let best = delays.iter().map(|(there, back)| there + back).min().expect("some");
            let converted = offset.to_launcher_clock(start.wrapping_add_signed(ahead));
            proptest::prop_assert!(converted.abs_diff(start) <= best / 2 + 1);
        }
    }
}

//! Credit window of output bytes. A link may have as many bytes in transit as it delivered in the
//! last second: its buffers are then sent within a second, and a heartbeat behind them is not late,
//! however slow the link is.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::base::{clock, lock};

/// Bytes that may always be in transit.
const BYTES_MIN: u64 = 64 * 1024;
/// Minimum number of bytes for which a read is worthwhile.
const GRANT_MIN: u64 = 4 * 1024;
/// The last second is counted in this many slots.
const SLOTS: usize = 10;
const SLOT: Duration = Duration::from_millis(100);

/// The window, shared by all tasks that forward output.
#[derive(Debug, Default)]
pub(super) struct OutputWindow {
    credit: Mutex<Credit>,
    changed: Notify,
}

impl OutputWindow {
    /// Sets the upper limit of the bytes in transit, however fast the link is.
    pub(super) fn open(&self, bytes_max: u64) {
        self.change(|credit| credit.open(bytes_max));
    }

    /// Closes the window: output can no longer be sent.
    pub(super) fn close(&self) {
        self.change(|credit| credit.is_closed = true);
    }

    /// Records that bytes have arrived and been consumed; false if that many were never sent.
    pub(super) fn acknowledge(&self, bytes: u64) -> bool {
        let mut was_sent = false;
        self.change(|credit| was_sent = credit.acknowledge(clock::now(), bytes));
        was_sent
    }

    /// Waits until bytes may be sent, at most `bytes_max`; `None` once the window is closed.
    pub(super) async fn reserve(&self, bytes_max: usize) -> Option<Grant<'_>> {
        loop {
            // Created before the credit is read, so that a change in between is not missed.
            let changed = self.changed.notified();
            {
                let mut credit = self.credit();
                if credit.is_closed {
                    return None;
                }
                if let Some(bytes) = credit.reserve(clock::now(), bytes_max as u64) {
                    return Some(Grant { window: self, bytes });
                }
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Credit)) {
        change(&mut self.credit());
        self.changed.notify_waiters();
    }

    fn credit(&self) -> std::sync::MutexGuard<'_, Credit> {
        lock(&self.credit)
    }
}

/// Bytes that may be sent. Those that were not sent are returned when this is dropped.
pub(super) struct Grant<'a> {
    window: &'a OutputWindow,
    bytes: u64,
}

impl Grant<'_> {
    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Counts this many bytes as sent.
    pub(super) fn spend(mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        let bytes = self.bytes;
        if 0 < bytes {
            self.window.change(|credit| credit.in_flight = credit.in_flight.saturating_sub(bytes));
        }
    }
}

/// The bytes in transit and those recently acknowledged. Pure.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    bytes_max: u64,
    in_flight: u64,
    is_closed: bool,
    /// Start of the first slot.
    since: Option<Instant>,
    /// The number of each slot, counted from the first, and the bytes acknowledged in it.
    slots: [(u64, u64); SLOTS],
}

impl Credit {
    /// Sets the upper limit of the bytes in transit.
    pub(crate) fn open(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Counts bytes as in transit, at most as many as wanted; `None` if too few are allowed.
    pub(crate) fn reserve(&mut self, now: Instant, wanted: u64) -> Option<u64> {
        let bound = self
            .acknowledged_in_last_second(now)
            .clamp(BYTES_MIN.min(self.bytes_max), self.bytes_max);
        let granted = bound.saturating_sub(self.in_flight).min(wanted);
        if granted < GRANT_MIN.min(wanted) {
            return None;
        }
        self.in_flight += granted;
        Some(granted)
    }

    /// Returns false, and counts nothing, if that many bytes are not in transit.
    pub(crate) fn acknowledge(&mut self, now: Instant, bytes: u64) -> bool {
        let Some(left) = self.in_flight.checked_sub(bytes) else {
            return false;
        };
        self.in_flight = left;
        let number = self.slot_number(now);
        let slot = &mut self.slots[number as usize % SLOTS];
        if slot.0 != number {
            *slot = (number, 0);
        }
        // Each of these bytes was in transit before, so the sum is limited by what the window
        // allows.
        slot.1 += bytes;
        true
    }

    fn acknowledged_in_last_second(&mut self, now: Instant) -> u64 {
        let newest = self.slot_number(now);
        let recent = self.slots.iter().filter(|(number, _)| newest < number + SLOTS as u64);
        recent.map(|(_, bytes)| bytes).sum()
    }

    /// Returns the number of the slot at this time.
    fn slot_number(&mut self, now: Instant) -> u64 {
        let since = *self.since.get_or_insert(now);
        (now.saturating_duration_since(since).as_millis() / SLOT.as_millis()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn open() -> Credit {
        Credit { bytes_max: 2048 * KIB, ..Credit::default() }
    }

    #[test]
    fn new_link_gets_the_minimum_window() {
        let (mut credit, now) = (open(), clock::now());
        assert_eq!(credit.reserve(now, 40 * KIB), Some(40 * KIB));
        assert_eq!(credit.reserve(now, 40 * KIB), Some(24 * KIB), "what is left");
        assert_eq!(credit.reserve(now, 40 * KIB), None);
        assert_eq!(Credit::default().reserve(now, 40 * KIB), None, "not open yet");
    }

    #[test]
    fn window_equals_bytes_of_the_last_second() {
        let (mut credit, now) = (open(), clock::now());
        let at = |ms| now + Duration::from_millis(ms);
        for _ in 0..4 {
            assert_eq!(credit.reserve(at(0), 64 * KIB), Some(64 * KIB));
            assert!(credit.acknowledge(at(0), 64 * KIB));
        }
        assert_eq!(credit.reserve(at(900), 1024 * KIB), Some(256 * KIB));
        assert!(credit.acknowledge(at(950), 128 * KIB));
        assert_eq!(
            credit.reserve(at(1000), 64 * KIB),
            None,
            "128 are in flight, 128 were acknowledged"
        );
        assert!(credit.acknowledge(at(1000), 100 * KIB));
        assert_eq!(credit.reserve(at(1000), 1024 * KIB), Some(200 * KIB));
        assert_eq!(credit.reserve(at(5000), 1024 * KIB), None, "the link has become slow");
    }

    #[test]
    fn window_never_exceeds_launcher_limit() {
        let (mut credit, now) = (open(), clock::now());
        for _ in 0..100 {
            let granted = credit.reserve(now, u64::MAX).expect("a fast link");
            assert!(granted <= 2048 * KIB && credit.acknowledge(now, granted));
        }
        assert_eq!(credit.reserve(now, u64::MAX), Some(2048 * KIB));
        let mut small = Credit { bytes_max: 10, ..Credit::default() };
        assert_eq!(small.reserve(now, 4), Some(4));
        assert_eq!(small.reserve(now, 100), None, "six bytes are below the minimum");
    }

    proptest::proptest! {
        /// At all times, the bytes in transit are at most what the link delivered in the second
        /// before they were granted, or the minimum that is always allowed.
        #[test]
        fn bytes_in_flight_are_bounded_by_acknowledged_bytes(
            steps in proptest::collection::vec((0u64..400, 0u64..200_000, 0u64..200_000), 1..60),
        ) {
            let (mut credit, start) = (open(), clock::now());
            let mut now = start;
            let mut arrived: Vec<(Instant, u64)> = Vec::new();
            for (pause, wanted, acknowledged) in steps {
                now += Duration::from_millis(pause);
                if let Some(granted) = credit.reserve(now, wanted) {
                    let recent = arrived.iter().filter(|(at, _)| now <= *at + Duration::from_secs(1));
                    let recent: u64 = recent.map(|(_, bytes)| bytes).sum();
                    proptest::prop_assert!(granted == 0 || credit.in_flight <= recent.max(BYTES_MIN));
                }
                let acknowledged = acknowledged.min(credit.in_flight);
                proptest::prop_assert!(credit.acknowledge(now, acknowledged));
                proptest::prop_assert!(!credit.acknowledge(now, credit.in_flight + 1));
                arrived.push((now, acknowledged));
            }
        }
    }
}

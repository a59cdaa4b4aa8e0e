//! Counter of the user's requests to end the job: the first stops it, the second kills the workers,
//! the third ends the launcher without waiting.

use std::time::{Duration, Instant};

/// Interval within which further signals belong to the same request, whatever their number:
/// `timeout` signals its command and then its whole group, a wrapper forwards a signal that the
/// terminal has sent already, systemd sends SIGHUP directly after SIGTERM. A second request of a
/// user is slower, or can be repeated.
pub const REQUEST_MERGE_INTERVAL: Duration = Duration::from_millis(50);

/// Requests that one process has received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    count: u32,
    last: Option<Instant>,
}

impl Requests {
    /// Counts a signal; returns the number of its request, from 1 on, or `None` if the signal
    /// belongs to the request before.
    pub fn record(&mut self, now: Instant) -> Option<u32> {
        // Measured from the last counted signal, so that a flood of signals is several requests.
        if self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < REQUEST_MERGE_INTERVAL)
        {
            return None;
        }
        self.last = Some(now);
        self.count += 1;
        Some(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    #[test]
    fn simultaneous_signals_are_one_request() {
        let start = clock::now();
        let mut requests = Requests::default();
        let mut at = |ms| requests.record(start + Duration::from_millis(ms));
        let counted = [0, 1, 49, 50, 51, 99, 100, 5000, 5000].map(&mut at);
        assert_eq!(counted, [Some(1), None, None, Some(2), None, None, Some(3), Some(4), None]);
    }
}

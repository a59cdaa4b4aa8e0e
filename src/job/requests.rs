//! How often somebody asked for the end: once politely, twice in a hurry, three times in despair.

use std::time::{Duration, Instant};

/// What comes so soon after a request belongs to it, of whichever kind it is: `timeout` signals its
/// command and then its whole group, a wrapper passes on what the terminal has sent already, systemd
/// sends SIGHUP right behind SIGTERM. Whoever means it twice is slower, or presses once more.
pub const SAME_REQUEST: Duration = Duration::from_millis(50);

/// Requests that came to one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    count: u32,
    last: Option<Instant>,
}

impl Requests {
    /// Counts a signal; which request it is, or `None` if it belongs to the one before.
    pub fn note(&mut self, now: Instant) -> Option<u32> {
        // Measured from the signal that counted: a flood of signals is more than one request.
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < SAME_REQUEST) {
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
    fn signals_at_once_are_one_request_and_a_flood_is_several() {
        let start = clock::now();
        let mut requests = Requests::default();
        let mut at = |ms| requests.note(start + Duration::from_millis(ms));
        let counted = [0, 1, 49, 50, 51, 99, 100, 5000, 5000].map(&mut at);
        assert_eq!(counted, [Some(1), None, None, Some(2), None, None, Some(3), Some(4), None]);
    }
}

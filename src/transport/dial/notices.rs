//! When a process that waits prints that it still does: soon once, then in growing distances, and when
//! there is another reason. Pure.

use std::time::Duration;

/// Time before the first line, and between two lines at least.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// Time between two lines with the same reason, at least.
const SAME_PAUSE_MIN: Duration = Duration::from_secs(60);
/// Different reasons that are told as soon as they are there.
const REASONS_MAX: usize = 8;

/// Lines about one wait.
#[derive(Debug, Default)]
pub(super) struct WaitNotices {
    /// Time waited at the last line.
    last: Duration,
    /// Reasons of all lines.
    reasons: Vec<String>,
}

impl WaitNotices {
    /// Whether a line with this reason is due after so long. The wait doubles from one to the next.
    pub(super) fn is_due(&mut self, waited: Duration, reason: &str) -> bool {
        let is_new = self.reasons.len() < REASONS_MAX
            && !self.reasons.iter().any(|told| told.as_str() == reason);
        let pause = if is_new { PAUSE_MIN } else { self.last.max(SAME_PAUSE_MIN) };
        if waited < self.last + pause {
            return false;
        }
        self.last = waited;
        if is_new {
            self.reasons.push(reason.to_owned());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which there is a line; the reason changes at one of them.
    fn due(seconds: u64, changes_at: u64) -> Vec<u64> {
        let mut notices = WaitNotices::default();
        let reason = |at| if at < changes_at { "no such name" } else { "nobody listens" };
        let is_due = |at: &u64| notices.is_due(Duration::from_secs(*at), reason(*at));
        (0..seconds).filter(is_due).collect()
    }

    #[test]
    fn wait_notices_are_few_and_far_between() {
        assert_eq!(due(30 * 60, 30 * 60), [10, 70, 140, 280, 560, 1120]);
        assert_eq!(due(100, 12), [10, 20, 80], "another reason is worth a line");
    }
}

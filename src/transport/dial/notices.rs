//! Decides when a waiting process prints a line about its wait: first soon, then at growing
//! intervals, and when the reason changes. Pure.

use std::time::Duration;

/// Time before a line about a name that will not begin to exist.
const FIXED_NAME_PAUSE: Duration = Duration::from_secs(1);
/// Time before the first line, and least time between two lines.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// Least time between two lines with the same reason.
const SAME_PAUSE_MIN: Duration = Duration::from_secs(60);
/// Number of different reasons that are printed at once.
const REASONS_MAX: usize = 8;

/// When the name of node 0 begins to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStart {
    /// Some time after the nodes were started, as those of pods.
    Late,
    /// Before the nodes are started, if ever.
    Early,
}

impl NameStart {
    /// Time before the first line about a name that does not resolve.
    fn pause(self) -> Duration {
        match self {
            Self::Late => PAUSE_MIN,
            Self::Early => FIXED_NAME_PAUSE,
        }
    }
}

/// State of the lines about one wait.
#[derive(Debug, Default)]
pub(super) struct WaitNotices {
    /// Length of the wait at the last line.
    last: Duration,
    /// Reasons of all lines so far.
    reasons: Vec<String>,
}

impl WaitNotices {
    /// Whether a line with this reason is due after a wait of this length. The length doubles from
    /// one line to the next.
    pub(super) fn is_due(&mut self, waited: Duration, reason: &str) -> bool {
        self.is_due_after(PAUSE_MIN, waited, reason)
    }

    /// Whether a line is due with a reason that the user must know at once.
    pub(super) fn is_due_at_once(&mut self, waited: Duration, reason: &str) -> bool {
        self.is_due_after(Duration::ZERO, waited, reason)
    }

    /// Whether a line is due with the reason that the name of node 0 does not resolve.
    pub(super) fn is_due_for_name(
        &mut self,
        start: NameStart,
        waited: Duration,
        reason: &str,
    ) -> bool {
        self.is_due_after(start.pause(), waited, reason)
    }

    fn is_due_after(&mut self, pause_if_new: Duration, waited: Duration, reason: &str) -> bool {
        let is_new = self.reasons.len() < REASONS_MAX
            && !self.reasons.iter().any(|printed| printed.as_str() == reason);
        let pause = if is_new { pause_if_new } else { self.last.max(SAME_PAUSE_MIN) };
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

    /// The seconds at which a line is printed; the reason changes at `changes_at`.
    fn due(seconds: u64, changes_at: u64) -> Vec<u64> {
        let mut notices = WaitNotices::default();
        let reason = |at| if at < changes_at { "no such name" } else { "connection refused" };
        let is_due = |at: &u64| notices.is_due(Duration::from_secs(*at), reason(*at));
        (0..seconds).filter(is_due).collect()
    }

    #[test]
    fn wait_notices_are_printed_at_growing_intervals() {
        assert_eq!(due(30 * 60, 30 * 60), [10, 70, 140, 280, 560, 1120]);
        assert_eq!(due(100, 12), [10, 20, 80], "another reason is worth a line");
        let mut notices = WaitNotices::default();
        let is_due = |at: &u64| notices.is_due_at_once(Duration::from_secs(*at), "another program");
        assert_eq!((1..200).filter(is_due).collect::<Vec<_>>(), [1, 61, 122]);
        for (start, first) in [(NameStart::Late, 10), (NameStart::Early, 1)] {
            let mut notices = WaitNotices::default();
            let is_due =
                |at: &u64| notices.is_due_for_name(start, Duration::from_secs(*at), "no such name");
            let second = first + 60;
            assert_eq!((0..100).filter(is_due).collect::<Vec<_>>(), [first, second], "{start:?}");
        }
    }
}

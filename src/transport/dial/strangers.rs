//! What is said of those who were not let in: little, and not more often than somebody would read.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Counts them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    told: Option<Instant>,
    untold: u64,
}

impl Strangers {
    /// The line to say about one more, if it is time for one. Pure.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        peer: IpAddr,
        why: &dyn Display,
    ) -> Option<String> {
        if self.told.is_some_and(|told| now < told + PAUSE) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        let before = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            1 => " (and 1 more since the last such line)".to_owned(),
            more => format!(" (and {more} more since the last such line)"),
        };
        Some(format!("note: {peer} was not let in: {why}{before}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    #[test]
    fn strangers_are_told_once_in_ten_seconds_and_counted() {
        let (mut strangers, now) = (Strangers::default(), clock::now());
        let peer = IpAddr::from([10, 0, 0, 9]);
        let mut at = |seconds| strangers.refused(now + Duration::from_secs(seconds), peer, &"why");
        assert_eq!(at(0).as_deref(), Some("note: 10.0.0.9 was not let in: why\n"));
        assert_eq!(at(1), None);
        assert_eq!(at(9), None);
        let line = "note: 10.0.0.9 was not let in: why (and 2 more since the last such line)\n";
        assert_eq!(at(10).as_deref(), Some(line));
    }
}

//! Rate-limited messages about rejected connections.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Least time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Counter of rejected connections.
#[derive(Debug, Default)]
pub(super) struct AuthFailures {
    last_line_at: Option<Instant>,
    suppressed: u64,
    last: Option<String>,
}

impl AuthFailures {
    /// Counts one more; returns the line to print if one is due. Pure.
    pub(super) fn record(
        &mut self,
        now: Instant,
        peer: IpAddr,
        why: &dyn Display,
    ) -> Option<String> {
        self.last = Some(format!("from {peer}: {why}"));
        if self.last_line_at.is_some_and(|last| now < last + PAUSE) {
            self.suppressed += 1;
            return None;
        }
        self.last_line_at = Some(now);
        let before = match std::mem::take(&mut self.suppressed) {
            0 => String::new(),
            1 => " (and 1 more since the last such line)".to_owned(),
            more => format!(" (and {more} more since the last such line)"),
        };
        Some(format!("note: rejected connection from {peer}: {why}{before}\n"))
    }

    /// Where the connection came from that was rejected last, and why; `None` if there was none.
    pub(super) fn last(&self) -> Option<String> {
        self.last.clone()
    }
}

/// Addresses with another key that are kept for each node.
const NAMED_MAX: usize = 4;

/// Connections that claimed to be a node with another key.
#[derive(Debug, Default)]
pub(super) struct WrongKeys {
    count: u64,
    addresses: BTreeSet<IpAddr>,
}

impl WrongKeys {
    /// Counts one more.
    pub(super) fn record(&mut self, from: IpAddr) {
        self.count += 1;
        if self.addresses.len() < NAMED_MAX {
            self.addresses.insert(from);
        }
    }

    /// Description of the connections; `None` if there were none. Pure.
    pub(super) fn describe(&self) -> Option<String> {
        let connections = match self.count {
            0 => return None,
            1 => "1 connection".to_owned(),
            times => format!("{times} connections"),
        };
        let from: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        Some(format!("{connections} with a different key, from {}", from.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    #[test]
    fn rejected_connections_are_reported_once_in_ten_seconds() {
        let (mut failures, now) = (AuthFailures::default(), clock::now());
        let peer = IpAddr::from([10, 0, 0, 9]);
        let mut at = |seconds| failures.record(now + Duration::from_secs(seconds), peer, &"why");
        assert_eq!(at(0).as_deref(), Some("note: rejected connection from 10.0.0.9: why\n"));
        assert_eq!(at(1), None);
        assert_eq!(at(9), None);
        let line =
            "note: rejected connection from 10.0.0.9: why (and 2 more since the last such line)\n";
        assert_eq!(at(10).as_deref(), Some(line));
        assert_eq!(AuthFailures::default().last(), None);
        assert_eq!(failures.last().as_deref(), Some("from 10.0.0.9: why"));
    }

    #[test]
    fn connections_with_another_key_are_counted_by_address() {
        let mut wrong_keys = WrongKeys::default();
        assert_eq!(wrong_keys.describe(), None);
        wrong_keys.record(IpAddr::from([10, 0, 0, 9]));
        let words = "1 connection with a different key, from 10.0.0.9";
        assert_eq!(wrong_keys.describe().as_deref(), Some(words));
        (1..9).for_each(|last| wrong_keys.record(IpAddr::from([10, 0, 0, last])));
        let words =
            "9 connections with a different key, from 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.9";
        assert_eq!(wrong_keys.describe().as_deref(), Some(words));
    }
}

//! The time limit for nodes that connect by themselves, and the option that sets it. Pure.

use std::time::Duration;

use crate::report::text::show_duration;

/// A time limit for nodes that connect by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinLimit {
    /// How long they are waited for.
    pub time: Duration,
    /// The option that sets it on the line that was typed; empty: there is none.
    pub option: &'static str,
}

impl JoinLimit {
    /// Formats the time with its option: `30 min (--join_timeout)`.
    pub fn show(self) -> String {
        let time = show_duration(self.time);
        if self.option.is_empty() { time } else { format!("{time} ({})", self.option) }
    }
}

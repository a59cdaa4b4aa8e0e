//! Durations, amounts of memory and counts as text.

use std::time::Duration;

pub use crate::base::{show_bytes, show_duration};

/// Returns `last output 1.5 s ago`.
pub fn show_last_output(since: Option<Duration>) -> String {
    since.map_or_else(
        || "no output".to_owned(),
        |since| format!("last output {} ago", show_duration(since)),
    )
}

/// Formats a number of processes: `1 process`, `3 processes`.
pub fn show_processes(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

/// Formats a number with its noun: `1 worker`, `3 workers`.
pub fn show_count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

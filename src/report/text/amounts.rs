//! Durations, amounts of memory and counts as text.

use std::time::Duration;

pub use crate::base::show_duration;

/// Returns `last output 1.5 s ago`.
pub fn show_last_output(since: Option<Duration>) -> String {
    since.map_or_else(
        || "no output".to_owned(),
        |since| format!("last output {} ago", show_duration(since)),
    )
}

/// Formats an amount of memory in a suitable unit: `512 B`, `1.5 GiB`.
pub fn show_bytes(mut bytes: f64) -> String {
    const UNITS: [&str; 8] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
    if bytes < 1024.0 {
        return format!("{bytes:.0} B");
    }
    for unit in UNITS {
        bytes /= 1024.0;
        if bytes < 1024.0 {
            return format!("{bytes:.1} {unit}");
        }
    }
    "more than 1024 YiB".to_owned()
}

/// Formats a number of processes: `1 process`, `3 processes`.
pub fn show_processes(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

/// Formats a number with its noun: `1 worker`, `3 workers`.
pub fn show_count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_have_their_unit() {
        assert_eq!(show_bytes(1023.0), "1023 B");
        assert_eq!(show_bytes(1536.0), "1.5 KiB");
        assert_eq!(show_bytes((23_u64 << 30) as f64), "23.0 GiB");
        assert_eq!(show_bytes(1e26), "82.7 YiB");
        assert_eq!(show_bytes(1e99), "more than 1024 YiB");
    }
}

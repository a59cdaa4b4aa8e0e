//! Durations, amounts of memory and counts as text.

use std::time::Duration;

/// Returns `last output 1.5 s ago`.
pub fn show_last_output(since: Option<Duration>) -> String {
    since.map_or_else(
        || "no output".to_owned(),
        |since| format!("last output {} ago", show_duration(since)),
    )
}

/// Formats a duration: `250 ms`, `9.5 s`, `108 s`, `14 min 02 s`, `2 h 01 min`.
pub fn show_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 {
        format!("{} ms", time.as_millis())
    } else if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if seconds < 120.0 {
        format!("{} s", time.as_secs().max(10))
    } else if seconds < 7200.0 {
        format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
    } else {
        format!("{} h {:02} min", time.as_secs() / 3600, time.as_secs() / 60 % 60)
    }
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
    fn durations_are_short() {
        assert_eq!(show_duration(Duration::from_millis(250)), "250 ms");
        assert_eq!(show_duration(Duration::from_secs(1)), "1.0 s");
        assert_eq!(show_duration(Duration::from_millis(9_949)), "9.9 s");
        assert_eq!(show_duration(Duration::from_millis(9_999)), "10 s");
        assert_eq!(show_duration(Duration::from_millis(12_440)), "12 s");
        assert_eq!(show_duration(Duration::from_millis(119_999)), "119 s");
        assert_eq!(show_duration(Duration::from_secs(120)), "2 min 00 s");
        assert_eq!(show_duration(Duration::from_secs(842)), "14 min 02 s");
        assert_eq!(show_duration(Duration::from_secs(7260)), "2 h 01 min");
    }

    #[test]
    fn amounts_of_memory_have_their_unit() {
        assert_eq!(show_bytes(1023.0), "1023 B");
        assert_eq!(show_bytes(1536.0), "1.5 KiB");
        assert_eq!(show_bytes((23_u64 << 30) as f64), "23.0 GiB");
        assert_eq!(show_bytes(1e26), "82.7 YiB");
        assert_eq!(show_bytes(1e99), "more than 1024 YiB");
    }
}

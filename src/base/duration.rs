//! Durations as text, the same on every screen and in every error.

use std::time::Duration;

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
}

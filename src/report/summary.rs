//! The last screen of a job that failed: the first failure, last.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::neutral::push_neutral;
use super::pages::stream_name;
use crate::wire::Stream;

/// Everything that the screen says.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Stable code, `R101`.
    pub code: &'static str,
    /// What happened, in one line.
    pub title: String,
    /// Facts, one per line.
    pub facts: Vec<String>,
    /// The last words of the worker.
    pub last_lines: Option<(Stream, Vec<Vec<u8>>)>,
    /// Where everything it wrote is kept.
    pub log: Option<PathBuf>,
    /// What to type.
    pub help: Vec<String>,
}

/// Draws it.
pub fn show_failure(failure: &Failure) -> String {
    let mut out = format!("error[{}]: {}\n", failure.code, failure.title);
    for fact in &failure.facts {
        let _ = writeln!(out, "  {fact}");
    }
    if let Some((stream, lines)) = &failure.last_lines {
        let _ = writeln!(out, "  last lines of its {}:", stream_name(*stream));
        for line in lines {
            let mut shown = Vec::new();
            push_neutral(&mut shown, line);
            let _ = writeln!(out, "    | {}", String::from_utf8_lossy(&shown));
        }
    }
    if let Some(log) = &failure.log {
        let _ = writeln!(out, "  log: {}", log.display());
    }
    for help in &failure.help {
        let _ = writeln!(out, "help: {help}");
    }
    out
}

/// One step of ours, its verb in a column: `   Running  12 workers`.
pub fn step(verb: &str, text: &str) -> String {
    format!("{verb:>10}  {text}\n")
}

/// A duration as people say it: `250 ms`, `12.4 s`, `14 min 02 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 {
        format!("{} ms", time.as_millis())
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else if seconds < 7200.0 {
        format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
    } else {
        format!("{} h {:02} min", time.as_secs() / 3600, time.as_secs() / 60 % 60)
    }
}

/// `1 process`, `3 processes`.
pub fn processes(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

/// The kernel's words for an error, without its number.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// `1 worker`, `3 workers`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(Duration::from_millis(250)), "250 ms");
        assert_eq!(duration(Duration::from_millis(12_440)), "12.4 s");
        assert_eq!(duration(Duration::from_secs(842)), "14 min 02 s");
        assert_eq!(duration(Duration::from_secs(7260)), "2 h 01 min");
    }

    #[test]
    fn what_a_worker_wrote_cannot_pose_as_ours() {
        let failure = Failure {
            code: "R101",
            title: "rank 1 failed".to_owned(),
            last_lines: Some((Stream::Stderr, vec![b"\x1b[2Kerror: no".to_vec()])),
            ..Failure::default()
        };
        assert_eq!(
            show_failure(&failure),
            "error[R101]: rank 1 failed\n  last lines of its stderr:\n    | \\x1b[2Kerror: no\n"
        );
    }
}

//! The last screen of a failed job, which ends with the first failure.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::diagnostic::Paint;
use super::neutral::escape_control_into;
use super::pages::stream_name;
use crate::wire::Stream;

/// The content of the screen.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Stable code, `R101`.
    pub code: &'static str,
    /// The failure in one line.
    pub title: String,
    /// Facts, one per line.
    pub facts: Vec<String>,
    /// The last lines of the worker.
    pub last_lines: Option<(Stream, Vec<Vec<u8>>)>,
    /// File with all output of the worker.
    pub log: Option<PathBuf>,
    /// Commands that help.
    pub help: Vec<String>,
}

/// Formats the screen.
pub fn show_failure(failure: &Failure) -> String {
    let mut out = format!("error[{}]: {}\n", failure.code, failure.title);
    for fact in &failure.facts {
        let _ = writeln!(out, "  {fact}");
    }
    if let Some((stream, lines)) = &failure.last_lines {
        let _ = writeln!(out, "  last lines of its {}:", stream_name(*stream));
        for line in lines {
            let mut shown = Vec::new();
            escape_control_into(&mut shown, line);
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

/// Returns `last output 1.5 s ago`.
pub fn show_last_output(since: Option<Duration>) -> String {
    since.map_or_else(
        || "no output".to_owned(),
        |since| format!("last output {} ago", show_duration(since)),
    )
}

/// Columns of the verb of a step.
const VERB_WIDTH: usize = 10;

/// Formats a step of remuda with its verb in a column: `   Running  12 workers`.
pub fn show_step(verb: &str, text: &str) -> String {
    format!("{verb:>VERB_WIDTH$}  {text}\n")
}

/// Severity of a message of remuda.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageLevel {
    /// A step or a note.
    #[default]
    Info,
    /// A message about something that may become an error.
    Warning,
    /// A message about a failure.
    Error,
}

impl MessageLevel {
    /// Returns the severity of a message: that of its first word.
    pub fn of(message: &str) -> Self {
        if message.starts_with("error") {
            Self::Error
        } else if message.starts_with("warning") {
            Self::Warning
        } else {
            Self::Info
        }
    }
}

/// Colours the first word of each line of remuda: `error[…]:`, `help:`, the verb of a step; titles
/// of errors and warnings are bold.
pub fn paint_message(text: &str, paint: Paint) -> String {
    match paint {
        Paint::Plain => text.to_owned(),
        Paint::Colour => text.split_inclusive('\n').map(paint_line).collect(),
    }
}

fn paint_line(line: &str) -> String {
    let kind = line.split([':', '[']).next().unwrap_or_default();
    let colour = match kind {
        "error" => AnsiColor::BrightRed,
        "warning" => AnsiColor::Yellow,
        "note" => AnsiColor::BrightGreen,
        "help" => AnsiColor::BrightCyan,
        _ => AnsiColor::Green,
    };
    let head = match (kind, line.find(':'), verb_end(line)) {
        ("error" | "warning" | "note" | "help", Some(colon), _) => colon,
        (_, _, Some(end)) => end,
        _ => return line.to_owned(),
    };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    let (head, rest) = line.split_at(head);
    if is_title(kind, head) {
        // As the titles of findings in a text: the message is bold without a colour.
        let (title, end) = rest.split_at(rest.trim_end_matches('\n').len());
        let bold = Style::new().bold();
        return format!("{style}{head}{style:#}{bold}{title}{bold:#}{end}");
    }
    format!("{style}{head}{style:#}{rest}")
}

/// Whether a line is the title of an error or a warning, or has a code.
fn is_title(kind: &str, head: &str) -> bool {
    matches!(kind, "error" | "warning") || kind == "note" && head.ends_with(']')
}

/// Position behind the verb of a step, if the line is a step.
fn verb_end(line: &str) -> Option<usize> {
    let (head, rest) = line.split_at_checked(VERB_WIDTH)?;
    let verb = head.trim_start();
    let is_verb = verb.starts_with(|c: char| c.is_ascii_uppercase())
        && verb.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_verb && rest.starts_with("  ")).then_some(VERB_WIDTH)
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

/// The kernel's text for an error, without its number.
pub fn show_io_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
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
    fn first_word_is_the_severity_of_a_message() {
        assert_eq!(MessageLevel::of("error[R101]: rank 1: no\n"), MessageLevel::Error);
        assert_eq!(MessageLevel::of("warning: a\nhelp: b\n"), MessageLevel::Warning);
        assert_eq!(MessageLevel::of("note: a\n"), MessageLevel::Info);
        assert_eq!(MessageLevel::of(&show_step("Stopping", "error")), MessageLevel::Info);
        assert!(MessageLevel::Info < MessageLevel::Warning);
        assert!(MessageLevel::Warning < MessageLevel::Error);
    }

    #[test]
    fn amounts_of_memory_have_their_unit() {
        assert_eq!(show_bytes(1023.0), "1023 B");
        assert_eq!(show_bytes(1536.0), "1.5 KiB");
        assert_eq!(show_bytes((23_u64 << 30) as f64), "23.0 GiB");
        assert_eq!(show_bytes(1e26), "82.7 YiB");
        assert_eq!(show_bytes(1e99), "more than 1024 YiB");
    }

    #[test]
    fn first_word_of_a_line_is_painted() {
        #[track_caller]
        fn check(text: &str, expect: &str) {
            assert_eq!(paint_message(text, Paint::Colour), expect);
            assert_eq!(paint_message(text, Paint::Plain), text);
        }
        check(
            "error[R101]: rank 1: no\n  host a\nhelp: b\n",
            "\x1b[1m\x1b[91merror[R101]\x1b[0m\x1b[1m: rank 1: no\x1b[0m\n  host a\n\x1b[1m\x1b[96mhelp\x1b[0m: b\n",
        );
        check(&show_step("Launch", "2 workers"), "\x1b[1m\x1b[32m    Launch\x1b[0m  2 workers\n");
        check("    | error: of a worker\n", "    | error: of a worker\n");
        check("  last lines of its stderr:\n", "  last lines of its stderr:\n");
        check("", "");
    }

    #[test]
    fn worker_output_cannot_imitate_remuda() {
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

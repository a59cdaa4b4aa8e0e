//! Messages of remuda: their severity, their verbs and their colours.

use anstyle::{AnsiColor, Style};

use crate::report::diagnostic::Paint;

/// Columns of the verb of a step.
pub(super) const VERB_WIDTH: usize = 10;

/// Formats a step of remuda with its verb in a column: `   Running  12 workers`.
pub fn show_step(verb: &str, text: &str) -> String {
    format!("{verb:>VERB_WIDTH$}  {text}\n")
}

/// Formats a line of help below a step; without help it is empty.
pub fn show_help(help: Option<&str>) -> String {
    help.map_or_else(String::new, |help| format!("help: {help}\n"))
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

pub(super) fn paint_line(line: &str) -> String {
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
pub(super) fn is_title(kind: &str, head: &str) -> bool {
    matches!(kind, "error" | "warning") || kind == "note" && head.ends_with(']')
}

/// Position behind the verb of a step, if the line is a step.
pub(super) fn verb_end(line: &str) -> Option<usize> {
    let (head, rest) = line.split_at_checked(VERB_WIDTH)?;
    let verb = head.trim_start();
    let is_verb = verb.starts_with(|c: char| c.is_ascii_uppercase())
        && verb.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_verb && rest.starts_with("  ")).then_some(VERB_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

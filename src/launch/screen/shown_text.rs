//! Texts of failed workers, as the final screen shows them.

use std::path::Path;

use crate::base::Rank;
use crate::report::text::ReportScreen;
use crate::report::{OutputRouter, escape_control};
use crate::wire::Stream;

/// Maximum number of characters of an exception in one line.
pub(in crate::launch) const EXCEPTION_CHARS_MAX: usize = 240;

/// Maximum number of lines of a traceback in an error file.
const STACK_LINES_MAX: usize = 60;

/// The last lines of a worker, with their stream.
pub(in crate::launch) type LastLines = Option<(Stream, Vec<Vec<u8>>)>;

/// The worker whose last lines are shown.
#[derive(Clone, Copy)]
pub(in crate::launch) struct ShownWorker<'a> {
    pub(in crate::launch) rank: Rank,
    /// Its name in front of a noun.
    pub(in crate::launch) whose: &'a str,
    /// Workers that reported the same exception.
    pub(in crate::launch) same: &'a [Rank],
    /// The exception that the title of the report has.
    pub(in crate::launch) title_has: Option<&'a str>,
    /// The screen whose text refers to what is above.
    pub(in crate::launch) screen: ReportScreen,
}

/// The last lines of a worker, unless the screen has them already: they are the traceback that is its last text, or
/// the title has the only one of them.
pub(in crate::launch) fn without_shown_text(
    last_lines: LastLines,
    pages: &OutputRouter,
    shown: ShownWorker<'_>,
    facts: &mut Vec<String>,
) -> LastLines {
    let (stream, _) = last_lines.as_ref()?;
    let ShownWorker { rank, whose, same, title_has, screen } = shown;
    let Some(above) = pages.shown_traceback(rank, *stream, same) else {
        return without_line_of_title(last_lines, title_has);
    };
    let whose = if above == rank { whose } else { "another rank's" };
    facts.push(format!("{whose} traceback is {}", earlier_place(screen)));
    None
}

/// The last lines of a worker, unless the title has the only one of them: `No module named train`.
fn without_line_of_title(last_lines: LastLines, exception: Option<&str>) -> LastLines {
    let (_, lines) = last_lines.as_ref()?;
    let ([line], Some(exception)) = (&lines[..], exception) else { return last_lines };
    let line = String::from_utf8_lossy(line);
    let is_same = line.trim_end().ends_with(exception.trim_end()) && !exception.trim().is_empty();
    if is_same { None } else { last_lines }
}

/// The traceback of an error file, as facts: its last lines.
pub(in crate::launch) fn show_recorded_stack(stack: &str) -> Vec<String> {
    let lines: Vec<&str> = stack.lines().collect();
    let last = &lines[lines.len().saturating_sub(STACK_LINES_MAX)..];
    let shown = last.iter().map(|line| format!("  | {}", escape_control(line.trim_end())));
    let head = "traceback in its error file:".to_owned();
    std::iter::once(head).chain(shown).collect()
}

/// Where a text is that is not repeated.
fn earlier_place(screen: ReportScreen) -> &'static str {
    match screen {
        ReportScreen::Node0 => "above",
        ReportScreen::OtherNode => "on the screen of node 0",
    }
}

/// Reference to the record of the causes of all restarts.
pub(in crate::launch) fn record_of_causes(record: &Path, screen: ReportScreen) -> String {
    let place = match screen {
        ReportScreen::Node0 => "",
        ReportScreen::OtherNode => " on node 0",
    };
    let record = record.display();
    format!("{record}{place} has the cause of each failure (`epochs`: epoch 0 is attempt 1)")
}

/// The first line of an exception, short enough for a line of the screen.
pub(in crate::launch) fn first_line(exception: &str) -> String {
    let line = exception.lines().next().unwrap_or_default().trim_end();
    let mut shown: String = line.chars().take(EXCEPTION_CHARS_MAX).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    escape_control(&shown)
}

/// The next lines of an exception whose first line only announces them: it ends with `:`, or counts the errors
/// of a configuration.
pub(in crate::launch) fn further_lines(exception: &str) -> Vec<String> {
    const LINES_MAX: usize = 3;
    let mut lines = exception.lines().map(str::trim_end);
    let first = lines.next().unwrap_or_default();
    if !first.ends_with(':') && !first.contains(" validation error") {
        return Vec::new();
    }
    let further = lines.filter(|line| !line.is_empty()).take(LINES_MAX);
    further.map(|line| format!("  {}", first_line(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_an_exception_announces_are_shown() {
        let text =
            "ValidationError: 1 validation error for Zero\noffload_optimiser\n  Extra inputs\n";
        assert_eq!(further_lines(text), ["  offload_optimiser", "    Extra inputs"]);
        assert_eq!(further_lines("ValueError: bad batch:\n\ncolumn 3"), ["  column 3"]);
        assert_eq!(further_lines("ValueError: bad\nnext line of the log"), [""; 0]);
    }

    #[test]
    fn line_of_the_title_is_shown_once() {
        let lines = |texts: &[&str]| {
            Some((Stream::Stderr, texts.iter().map(|text| text.as_bytes().to_vec()).collect()))
        };
        let check = |texts: &[&str], exception: Option<&str>, is_shown: bool| {
            let left = without_line_of_title(lines(texts), exception);
            assert_eq!(left, lines(texts).filter(|_| is_shown), "{texts:?} {exception:?}");
        };
        let line = "/usr/bin/python3: No module named nosuch";
        check(&[line], Some("No module named nosuch"), false);
        check(&[line], Some("No module named other"), true);
        check(&[line], Some(""), true);
        check(&[line], None, true);
        check(&["note", line], Some("No module named nosuch"), true);
    }

    #[test]
    fn screen_on_other_nodes_names_node_0() {
        let (record, other) = (Path::new("/r/run.json"), ReportScreen::OtherNode);
        let rest = "has the cause of each failure (`epochs`: epoch 0 is attempt 1)";
        let text = record_of_causes(record, other);
        assert_eq!(text, format!("/r/run.json on node 0 {rest}"));
        let text = record_of_causes(record, ReportScreen::Node0);
        assert_eq!(text, format!("/r/run.json {rest}"));
        assert_eq!(earlier_place(other), "on the screen of node 0");
        assert_eq!(earlier_place(ReportScreen::Node0), "above");
    }

    #[test]
    fn recorded_stack_is_escaped_and_bounded() {
        let shown = show_recorded_stack("Traceback\nE: \x1b[2J\n");
        assert_eq!(shown, ["traceback in its error file:", "  | Traceback", "  | E: \\x1b[2J"]);
        let long = "x\n".repeat(100);
        assert_eq!(show_recorded_stack(&long).len(), STACK_LINES_MAX + 1);
    }

    #[test]
    fn exception_fits_a_line() {
        assert_eq!(first_line("E: a \x1b[2J\nsecond"), "E: a \\x1b[2J");
        assert_eq!(first_line(&"x".repeat(1000)).chars().count(), EXCEPTION_CHARS_MAX + 1);
        assert_eq!(first_line(""), "");
    }
}

//! Texts of failed workers, as the final screen shows them.

use std::path::Path;

use crate::base::Rank;
use crate::report::text::ReportScreen;
use crate::report::{OutputRouter, escape_control};
use crate::wire::Stream;

/// Maximum number of characters of an exception in one line.
pub(in crate::launch) const EXCEPTION_CHARS_MAX: usize = 240;

/// The last lines of a worker, with their stream.
pub(in crate::launch) type LastLines = Option<(Stream, Vec<Vec<u8>>)>;

/// The last lines of a worker, unless they are the traceback that is already the last text on the
/// screen.
pub(in crate::launch) fn without_shown_traceback(
    last_lines: LastLines,
    pages: &OutputRouter,
    (rank, whose): (Rank, &str),
    screen: ReportScreen,
    facts: &mut Vec<String>,
) -> LastLines {
    let (stream, _) = last_lines.as_ref()?;
    if !pages.shows_traceback(rank, *stream) {
        return last_lines;
    }
    facts.push(format!("{whose} traceback is {}", earlier_place(screen)));
    None
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
    format!("{}{place} has the cause of each", record.display())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_on_other_nodes_names_node_0() {
        let (record, other) = (Path::new("/r/run.json"), ReportScreen::OtherNode);
        assert_eq!(record_of_causes(record, other), "/r/run.json on node 0 has the cause of each");
        assert_eq!(
            record_of_causes(record, ReportScreen::Node0),
            "/r/run.json has the cause of each"
        );
        assert_eq!(earlier_place(other), "on the screen of node 0");
        assert_eq!(earlier_place(ReportScreen::Node0), "above");
    }

    #[test]
    fn exception_fits_a_line() {
        assert_eq!(first_line("E: a \x1b[2J\nsecond"), "E: a \\x1b[2J");
        assert_eq!(first_line(&"x".repeat(1000)).chars().count(), EXCEPTION_CHARS_MAX + 1);
        assert_eq!(first_line(""), "");
    }
}

//! Texts of failed workers, as the final screen shows them.

use crate::base::Rank;
use crate::report::{OutputRouter, escape_control};
use crate::wire::Stream;

/// Maximum number of characters of an exception in one line.
pub(in crate::launch) const EXCEPTION_CHARS_MAX: usize = 240;

/// End of the line with the record of all restarts.
pub(in crate::launch) const HAS_CAUSES: &str = " has the cause of each";

/// The last lines of a worker, with their stream.
pub(in crate::launch) type LastLines = Option<(Stream, Vec<Vec<u8>>)>;

/// The last lines of a worker, unless they are the traceback that is already the last text on the
/// screen.
pub(in crate::launch) fn without_shown_traceback(
    last_lines: LastLines,
    pages: &OutputRouter,
    (rank, whose): (Rank, &str),
    facts: &mut Vec<String>,
) -> LastLines {
    let (stream, _) = last_lines.as_ref()?;
    if !pages.shows_traceback(rank, *stream) {
        return last_lines;
    }
    facts.push(format!("{whose} traceback{IS_ABOVE}"));
    None
}

/// End of the line about a traceback that is not repeated.
pub(in crate::launch) const IS_ABOVE: &str = " is above";

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
    fn exception_fits_a_line() {
        assert_eq!(first_line("E: a \x1b[2J\nsecond"), "E: a \\x1b[2J");
        assert_eq!(first_line(&"x".repeat(1000)).chars().count(), EXCEPTION_CHARS_MAX + 1);
        assert_eq!(first_line(""), "");
    }
}

//! Row of a terminal that a program may redraw, and the line that it becomes.

use super::text_row::TextRow;

/// A line that is final.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::report) struct FinalLine {
    /// Text without an end of line, with colours.
    pub(in crate::report) text: Vec<u8>,
    /// Whether the next line continues this one.
    pub(in crate::report) continues: bool,
}

/// A row that can still be redrawn.
#[derive(Default)]
pub(super) struct EmulatedRow {
    pub(super) text: TextRow,
    /// Whether a control changed the row; blanks at its end are then ignored.
    pub(super) is_redrawn: bool,
    /// Whether a line feed ended it after the newest text.
    pub(super) is_ended: bool,
    /// The text that `Emulator::take_changed_bar` returned last.
    pub(super) reported: Option<Vec<u8>>,
}

impl EmulatedRow {
    /// Whether the row has changed since it was last reported. A row that has ended becomes a line
    /// soon, so it is not reported as a bar.
    pub(super) fn has_changed(&self) -> bool {
        !self.is_ended && self.reported.as_ref().is_none_or(|reported| *reported != self.trimmed())
    }

    pub(super) fn trimmed(&self) -> Vec<u8> {
        let mut text = self.text.clone();
        text.trim();
        text.to_bytes()
    }

    /// `None` for a row that a control has left blank, or whose text was reported unchanged.
    pub(super) fn into_line(mut self) -> Option<FinalLine> {
        if self.is_redrawn {
            self.text.trim();
            if self.text.is_empty() {
                return None;
            }
        }
        let text = self.text.to_bytes();
        let is_reported = self.reported.as_ref() == Some(&text);
        (!is_reported).then_some(FinalLine { text, continues: false })
    }
}

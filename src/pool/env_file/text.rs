//! A part of a line, with its position.

use crate::base::Span;

/// A part of the text and its start byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvText<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl EnvText<'_> {
    pub(super) fn part(self, from: usize, to: usize) -> Self {
        Self { text: &self.text[from..to], start: self.start + from }
    }

    pub(super) fn trim(self) -> Self {
        let from = self.text.len() - self.text.trim_start().len();
        let text = self.text.trim();
        Self { text, start: self.start + from }
    }

    pub(super) fn span(self) -> Span {
        Span::new(self.start, self.start + self.text.len())
    }
}

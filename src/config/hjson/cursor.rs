//! A position in an Hjson text, and what is skipped between its words.

use crate::base::{Diagnostic, Span};
use crate::config::codes::SYNTAX;

/// A problem at which reading ends.
pub(super) type Refused = Box<Diagnostic>;

/// A position in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte at the position; `None` at the end.
    pub(super) fn byte(self) -> Option<u8> {
        self.byte_after(0)
    }

    /// The byte some bytes further on.
    pub(super) fn byte_after(self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    /// The text from the position on.
    pub(super) fn rest(self) -> &'a str {
        &self.text[self.at..]
    }

    /// The place of the next character, or an empty one at the end.
    pub(super) fn here(self) -> Span {
        let len = self.rest().chars().next().map_or(0, char::len_utf8);
        Span::new(self.at, self.at + len)
    }

    /// The place from `start` to the position.
    pub(super) fn since(self, start: usize) -> Span {
        Span::new(start, self.at)
    }

    /// Moves over one character.
    pub(super) fn step(&mut self) {
        self.at = self.here().end;
    }

    /// Skips white space and comments.
    pub(super) fn skip(&mut self) -> Result<(), Refused> {
        loop {
            match (self.byte(), self.byte_after(1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r'), _) => self.at += 1,
                (Some(b'#'), _) | (Some(b'/'), Some(b'/')) => self.skip_line(),
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = self.rest();
        self.at += rest.find(['\r', '\n']).unwrap_or(rest.len());
    }

    fn skip_comment(&mut self) -> Result<(), Refused> {
        let start = self.at;
        let end = self.text[start + 2..].find("*/");
        let Some(end) = end else {
            let open = Span::new(start, start + 2);
            let problem = refused(open, "the comment is not closed").label("begins here");
            return Err(Box::new(problem.help("close it with `*/`")));
        };
        self.at = start + 2 + end + 2;
        Ok(())
    }

    /// Skips at most `count` blanks at the start of a line.
    pub(super) fn skip_indent(&mut self, count: usize) {
        for _ in 0..count {
            match self.byte() {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                _ => return,
            }
        }
    }
}

/// A problem of the syntax.
pub(super) fn refused(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(SYNTAX, span, message)
}

/// White space of Python's `str.strip`.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Removes white space at both ends.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Removes white space at the end.
pub(super) fn strip_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

//! A line of a hostfile, and a word of it.

use crate::base::{Diagnostic, HostName, Span, UserName};
use crate::pool::hostfile::hosts::SlotCount;

/// The content of a line, as far as it can be parsed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct HostLine {
    /// The host and the position of its name.
    pub(crate) host: Option<(HostName, Span)>,
    /// The login user.
    pub(crate) user: Option<UserName>,
    /// Number of slots.
    pub(crate) slots: Option<SlotCount>,
    /// Open MPI's limit.
    pub(crate) max_slots: Option<SlotCount>,
    /// All problems of the line.
    pub(crate) problems: Vec<Diagnostic>,
}

/// A word with its position in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostToken<'a> {
    pub(crate) text: &'a str,
    pub(crate) span: Span,
}

impl<'a> HostToken<'a> {
    pub(crate) fn new(text: &'a str, start: usize) -> Self {
        Self { text, span: Span::new(start, start + text.len()) }
    }

    /// A part of the word, by its byte offsets.
    pub(crate) fn part(self, from: usize, to: usize) -> Self {
        Self {
            text: &self.text[from..to],
            span: Span::new(self.span.start + from, self.span.start + to),
        }
    }

    /// Whether the word is `key=value` and not a host name.
    pub(crate) fn is_setting(self) -> bool {
        let key = self.text.split_once('=').map(|(key, _)| key);
        key.is_some_and(|key| {
            key.starts_with(|c: char| c.is_ascii_alphabetic()) && !key.contains('@')
        })
    }

    /// Whether the word has a control byte, which is reported elsewhere.
    pub(crate) fn has_control_byte(self) -> bool {
        self.text.contains(char::is_control)
    }
}

//! The command line, for errors that point at its options.

use std::path::Path;

use crate::base::{Diagnostic, Status};
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan, CommandLine};

/// The command line, for errors that point at its options.
pub(super) struct TypedLine<'a>(pub(super) &'a CommandLine);

impl TypedLine<'_> {
    /// Returns the place of the value of the first given option.
    pub(super) fn first_of(&self, flags: &[&str]) -> ArgvSpan {
        let given = flags.iter().find_map(|flag| self.0.value_span(flag));
        given.unwrap_or_else(|| self.0.end_span())
    }

    /// Returns the place of one of several files of an option.
    pub(super) fn file(&self, flag: &str, file: &Path) -> ArgvSpan {
        let whole = self.0.words.iter().position(|word| word == file.as_os_str());
        match whole {
            Some(word) => ArgvSpan { word, start: 0, end: file.as_os_str().len() },
            None => self.0.value_or_end(flag),
        }
    }

    pub(super) fn refuse(
        &self,
        status: Status,
        code: &'static str,
        place: ArgvSpan,
        message: String,
        finish: impl FnOnce(Diagnostic) -> Diagnostic,
    ) -> CliError {
        let make = |spans: &[_]| finish(Diagnostic::error(code, spans[0], message));
        CliError::Findings { status, findings: vec![self.0.refuse(&[place], make).findings] }
    }
}

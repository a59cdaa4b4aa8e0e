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
        self.0.path_span(file).unwrap_or_else(|| self.0.value_or_end(flag))
    }

    pub(super) fn refuse(
        &self,
        status: Status,
        code: &'static str,
        place: ArgvSpan,
        message: String,
        finish: impl FnOnce(Diagnostic) -> Diagnostic,
    ) -> CliError {
        let problem = finish(Diagnostic::whole(code, message));
        CliError::refused(status, self.0.refuse_at(place, problem))
    }
}

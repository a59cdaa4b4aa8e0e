//! Errors of `remuda sample`, as screens.

use crate::base::{Diagnostic, Status};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;

/// A problem of the value of an option.
pub(super) struct SampleProblem<'a> {
    pub(super) code: &'static str,
    pub(super) status: Status,
    /// Option whose value is underlined; if it was not typed, the end of the line is.
    pub(super) option: &'a str,
    pub(super) message: String,
    pub(super) help: String,
}

impl SampleProblem<'_> {
    /// The error, at its place.
    pub(super) fn at(self, typed: &CommandLine) -> CliError {
        let Self { code, status, option, message, help } = self;
        let problem = Diagnostic::whole(code, message).help(help);
        CliError::refused(status, typed.refuse_at(typed.value_or_end(option), problem))
    }
}

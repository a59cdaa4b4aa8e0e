//! Errors of checkpoints, as screens.

use std::path::Path;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Status};
use crate::cli::command::checkpoint::codes::{DAMAGED, NEWER_FORMAT, NO_CHECKPOINT};
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan, CommandLine};
use crate::runtime::checkpoint::OpenError;

/// Place of a path in the command line.
pub(in crate::cli::command) fn place_of(typed: &CommandLine, path: &Path) -> ArgvSpan {
    typed.path_span(path).unwrap_or_else(|| typed.end_span())
}

/// Code of an error, and what to do about it.
pub(in crate::cli::command) fn code_of(error: &OpenError) -> (&'static str, Option<String>) {
    match error {
        OpenError::Empty { .. } | OpenError::Read { .. } | OpenError::NotCheckpoint { .. } => {
            let help = "name a checkpoint, such as `run/step-00000012`, or a directory of them";
            (NO_CHECKPOINT, Some(help.to_owned()))
        }
        OpenError::Newer { .. } => (NEWER_FORMAT, Some("use the version that wrote it".to_owned())),
        OpenError::Damaged { path, .. } => {
            let path = quoted(path);
            (DAMAGED, Some(format!("`remuda checkpoint verify {path}` reports every damage")))
        }
        OpenError::AllDamaged { dir, .. } => {
            let dir = quoted(dir);
            (DAMAGED, Some(format!("`remuda checkpoint verify {dir}` reports every damage")))
        }
        OpenError::OtherModel { .. }
        | OpenError::Request { .. }
        | OpenError::Ranks { .. }
        | OpenError::Group(_) => (DAMAGED, None),
    }
}

/// Error of a checkpoint that was named on the command line.
pub(in crate::cli::command) fn refuse(
    typed: &CommandLine,
    path: &Path,
    status: Option<Status>,
    error: &OpenError,
) -> CliError {
    let (code, help) = code_of(error);
    let status = status.unwrap_or(match error {
        OpenError::Empty { .. } | OpenError::Read { .. } => Status::NoInput,
        _ => Status::BadInput,
    });
    let problem = Diagnostic { help, ..Diagnostic::whole(code, error.to_string()) };
    CliError::refused(status, typed.refuse_at(place_of(typed, path), problem))
}

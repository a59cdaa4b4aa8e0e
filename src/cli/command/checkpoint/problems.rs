//! Errors of checkpoints, as screens.

use std::path::Path;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Status};
use crate::cli::command::checkpoint::codes::{DAMAGED, NEWER_FORMAT, NO_CHECKPOINT};
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan, CommandLine};
use crate::runtime::checkpoint::{OpenError, list_checkpoints};

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
        OpenError::Damaged { path, .. } => (DAMAGED, Some(help_for_damaged(path))),
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

/// What to do about one damaged checkpoint. Others beside it may be undamaged; all of their bytes must be read
/// to know that, which is left to the user.
fn help_for_damaged(path: &Path) -> String {
    let others = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .filter(|dir| list_checkpoints(dir).is_ok_and(|(names, _)| 1 < names.len()));
    match others {
        Some(dir) => {
            let dir = quoted(dir);
            format!(
                "`remuda checkpoint verify {dir}` checks all, and names the newest undamaged one"
            )
        }
        None => format!("`remuda checkpoint verify {}` reports every damage", quoted(path)),
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

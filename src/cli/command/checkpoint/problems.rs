//! Errors of checkpoints, as screens.

use std::path::Path;
use std::time::Duration;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Status};
use crate::cli::command::checkpoint::codes::{DAMAGED, NEWER_FORMAT, NO_CHECKPOINT};
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan, CommandLine};
use crate::runtime::checkpoint::{NewestCheckpoint, OpenError, newest_undamaged};

/// Limit of the search for a checkpoint in the place of a damaged one.
const UNDAMAGED_LIMIT: Duration = Duration::from_secs(10);

/// Place of a path in the command line.
pub(in crate::cli::command) fn place_of(typed: &CommandLine, path: &Path) -> ArgvSpan {
    typed.path_span(path).unwrap_or_else(|| typed.end_span())
}

/// Code of an error.
pub(in crate::cli::command) fn code_of(error: &OpenError) -> &'static str {
    match error {
        OpenError::Empty { .. } | OpenError::Read { .. } | OpenError::NotCheckpoint { .. } => {
            NO_CHECKPOINT
        }
        OpenError::Newer { .. } => NEWER_FORMAT,
        OpenError::Damaged { .. }
        | OpenError::AllDamaged { .. }
        | OpenError::OtherModel { .. }
        | OpenError::Request { .. }
        | OpenError::Ranks { .. }
        | OpenError::Group(_) => DAMAGED,
    }
}

/// What to do about an error.
fn help_of(error: &OpenError) -> Option<String> {
    match error {
        OpenError::Empty { .. } | OpenError::Read { .. } | OpenError::NotCheckpoint { .. } => {
            let help = "name a checkpoint, such as `run/step-00000012`, or a directory of them";
            Some(help.to_owned())
        }
        OpenError::Newer { .. } => Some("use the version that wrote it".to_owned()),
        OpenError::Damaged { path, .. } => Some(help_for_damaged(path)),
        OpenError::AllDamaged { dir, .. } => {
            Some(format!("`remuda checkpoint verify {}` reports every damage", quoted(dir)))
        }
        OpenError::OtherModel { .. }
        | OpenError::Request { .. }
        | OpenError::Ranks { .. }
        | OpenError::Group(_) => None,
    }
}

/// What to do about one damaged checkpoint, or a directory of checkpoints with a damaged `latest`.
fn help_for_damaged(path: &Path) -> String {
    let every = format!("`remuda checkpoint verify {}` reports every damage", quoted(path));
    match name_undamaged(path) {
        Some(newest) => format!("{newest}; {every}"),
        None => every,
    }
}

/// Names the newest undamaged checkpoint beside a damaged one, if there is one.
pub(super) fn name_undamaged(damaged: &Path) -> Option<String> {
    let NewestCheckpoint { reader, checked } = newest_undamaged(damaged, UNDAMAGED_LIMIT)?;
    let (path, caveat) = (reader.path().display(), checked.caveat());
    Some(format!("the newest undamaged checkpoint is `{path}`{caveat}"))
}

/// Error of a checkpoint that was named on the command line.
pub(in crate::cli::command) fn refuse(
    typed: &CommandLine,
    path: &Path,
    status: Option<Status>,
    error: &OpenError,
) -> CliError {
    let (code, help) = (code_of(error), help_of(error));
    let status = status.unwrap_or(match error {
        OpenError::Empty { .. } | OpenError::Read { .. } => Status::NoInput,
        _ => Status::BadInput,
    });
    let problem = Diagnostic { help, ..Diagnostic::whole(code, error.to_string()) };
    CliError::refused(status, typed.refuse_at(place_of(typed, path), problem))
}

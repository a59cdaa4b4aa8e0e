//! Options that every step of a start needs.

use crate::cli::args::{WatchArgs, WorkerArgs};
use crate::cli::line::AppliedSettings;
use crate::report::Terminal;

/// Options of a job that do not depend on its cluster and its program.
#[derive(Clone, Copy)]
pub(in crate::cli) struct JobArgs<'a> {
    pub(in crate::cli) watch: &'a WatchArgs,
    pub(in crate::cli) workers: &'a WorkerArgs,
    /// What the line has from files and variables.
    pub(in crate::cli) settings: Option<&'a AppliedSettings>,
    pub(in crate::cli) terminal: Terminal,
}

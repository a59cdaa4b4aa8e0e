//! Where a command line runs its workers: on hosts that it reaches, or on tasks that Slurm has started.

use crate::cli::args::{ClusterArgs, check};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::cluster::{ResolvedCluster, resolve_hosts};
use crate::cli::resolve::{one_by_one, pool};
use crate::report::Terminal;

/// Resolves the options about where a job runs.
pub(in crate::cli) fn resolve_cluster(
    args: &ClusterArgs,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<ResolvedCluster, CliError> {
    if let Some((task, slots)) = pool::step_task(args, typed)? {
        return one_by_one::of_step(&task, slots, (args, typed), terminal);
    }
    check::key_file(args, typed)?;
    resolve_hosts(args, typed, terminal)
}

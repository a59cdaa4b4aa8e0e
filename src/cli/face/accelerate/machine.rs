//! The number of this machine among those of the job.

use super::args::AccelerateArgs;
use super::settings::Settings;
use crate::base::NodeRank;
use crate::cli::face::torchrun::node_number::{NodeNumber, NumberOptions, number_of_own_task};
use crate::cli::line::{CommandLine, RefusedLine};
use crate::cli::resolve;

/// The setting that gives the number.
const RANK: &str = "machine_rank";
const OPTIONS: NumberOptions = NumberOptions { number: RANK, count: "num_machines" };

/// Returns the number that the line or the file gives this machine; `None`: neither does, or a scheduler has started
/// one task for each machine, and 0 in the file, which `accelerate config` writes, cannot be the number of all.
pub(super) fn given_rank(
    args: &AccelerateArgs,
    settings: &Settings,
    machines: usize,
) -> Option<i64> {
    let rank = settings.whole(RANK)?;
    let is_of_all = || resolve::own_task().is_some_and(|task| task.count == machines);
    (args.is_typed(RANK) || rank != 0 || !is_of_all()).then_some(rank)
}

/// Returns the number of this machine for a line that starts it alone.
pub(super) fn machine_number(
    given: Option<i64>,
    typed: &CommandLine,
    machines: usize,
) -> Result<NodeNumber, RefusedLine> {
    match given {
        Some(rank) => Ok(NodeNumber { number: NodeRank(rank as u32), note: None }),
        None => number_of_own_task(typed, OPTIONS, machines),
    }
}

//! The process of a step of Slurm, or of an MPI command, that this process is.

use crate::base::NodeRank;
use crate::cli::resolve::allocation::{self, AllocationSource, StepTask};
use crate::cli::resolve::mpi_task;
use crate::cli::resolve::trust::Trust;

/// The tasks of which one is this process.
pub(in crate::cli) struct TaskGroup {
    /// What they belong to: `Slurm step 17.0`, `mpirun`.
    pub(in crate::cli) name: String,
}

impl TaskGroup {
    /// Formats the line that starts one task on each of these nodes.
    pub(in crate::cli) fn line(&self, nodes: usize) -> String {
        if self.name.starts_with("Slurm") {
            format!("srun --nodes={nodes} --ntasks={nodes} …")
        } else {
            format!("{} -np {nodes} …", self.name)
        }
    }
}

/// One of several processes that a process manager started with the same line.
pub(in crate::cli) struct OwnTask {
    pub(in crate::cli) number: NodeRank,
    /// Number of tasks.
    pub(in crate::cli) count: usize,
    pub(in crate::cli) tasks: TaskGroup,
}

/// Returns the task that this process is, if there are several.
pub(in crate::cli) fn own_task() -> Option<OwnTask> {
    let StepTask { number, count, group, .. } = step_task()?;
    Some(OwnTask { number: NodeRank(number), count, tasks: TaskGroup { name: group } })
}

/// Returns the task of MPI or Slurm that this process is, if there are several.
pub(super) fn step_task() -> Option<StepTask> {
    let slurm = || match allocation::find(Trust::of(false), None) {
        Ok(AllocationSource::OneTaskOfMany(task)) => Some(task),
        _ => None,
    };
    mpi_task::find().or_else(slurm)
}

//! An allocation of several nodes around a line that starts one node.

use crate::cli::resolve::allocation::{self, AllocationSource};
use crate::cli::resolve::mpi_task;
use crate::cli::resolve::trust::Trust;
use crate::pool::SlotCount;

/// The allocation in which this process is, if it has several nodes and this is no task of a step.
pub(super) struct WideAllocation {
    /// Its name: `allocation of Slurm job 17`.
    pub(super) origin: String,
    /// Number of its nodes.
    pub(super) nodes: usize,
}

impl WideAllocation {
    /// Finds it in the environment.
    pub(super) fn find() -> Option<Self> {
        if mpi_task::find().is_some() {
            return None;
        }
        match allocation::find(Trust::of(false), SlotCount::new(1)).ok()? {
            AllocationSource::Nodes(found) => {
                let nodes = found.reading.hostfile.pool().nodes().len();
                (1 < nodes).then_some(Self { origin: found.origin, nodes })
            }
            AllocationSource::NotFound | AllocationSource::OneTaskOfMany(_) => None,
        }
    }

    /// Returns how to start the nodes that a line with these options does not start. `takes_numbers`: the line can be
    /// typed on every node as it is, because nodes get their numbers when they join.
    pub(super) fn help_to_start_all(&self, options: &[String], takes_numbers: bool) -> String {
        let Self { origin, nodes } = self;
        let is_slurm = allocation::is_in_slurm();
        let on_all = match (takes_numbers, is_slurm) {
            (true, true) => {
                "type `srun --ntasks-per-node=1` before it to start it on every node, or "
            }
            (true, false) => "type it on every node, or ",
            (false, _) => "",
        };
        let options = match options {
            [] => "the address".to_owned(),
            options => format!("`{}`", options.join("` and `")),
        };
        format!(
            "the {origin} has {nodes} nodes, and this line starts one of them: {on_all}leave {options} out, so that \
             one line starts all"
        )
    }
}

/// Returns a note for a line of one node in an allocation of several.
pub(in crate::cli) fn unused_nodes_note(nodes_option: &str) -> Option<String> {
    let WideAllocation { origin, nodes } = WideAllocation::find()?;
    Some(format!(
        "note: the {origin} has {nodes} nodes, and this job runs on this machine alone; type `{nodes_option} {nodes}` to \
         use all\n"
    ))
}

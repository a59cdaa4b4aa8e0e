//! The nodes of a scheduler, for lines of launchers that name no hosts: `salloc -N 2 remuda torchrun
//! --nnodes 2 …`.

use std::path::Path;

use crate::base::{NodeRank, env_vars};
use crate::cli::error::CliError;
use crate::cli::resolve::allocation::{self, AllocationSource, StepTask};
use crate::cli::resolve::dial::NodePorts;
use crate::cli::resolve::one_by_one::{NodePlace, OneByOne, port_of};
use crate::cli::resolve::own_task::{TaskGroup, step_task};
use crate::cli::resolve::program::search_path;
use crate::cli::resolve::slurm_address::meeting_address;
use crate::cli::resolve::trust::Trust;
use crate::cli::resolve::{mpi_task, pool};
use crate::pool::Dialect;
use crate::report::Terminal;
use crate::transport::manager::kinds::SLURM;

/// Where the nodes of a line without hosts are.
pub(in crate::cli) enum AllocatedNodes {
    /// On these hosts of an allocation.
    Hosts {
        names: Vec<String>,
        /// How remuda starts its agents there, if not over ssh.
        launcher: Option<&'static str>,
    },
    /// The scheduler has started one process for each node, of which this is one.
    Task {
        node: OneByOne,
        tasks: TaskGroup,
        /// A note of task 0 on the address at which all meet.
        note: Option<String>,
    },
}

/// Returns the nodes that a scheduler gave to this process, if there are any.
pub(in crate::cli) fn allocated_nodes(
    terminal: Terminal,
) -> Result<Option<AllocatedNodes>, CliError> {
    if let Some(task) = mpi_task::find() {
        return Ok(of_task(task));
    }
    let found = allocation::find(Trust::of(false), None);
    Ok(match found.map_err(|error| pool::load_error(&error, terminal))? {
        AllocationSource::NotFound => None,
        AllocationSource::OneTaskOfMany(task) => of_task(task),
        AllocationSource::Nodes(found) => {
            let is_slurm = found.reading.dialect == Dialect::Slurm;
            let has_manager = is_slurm && search_path(SLURM.usual_program()).is_some();
            let nodes = found.reading.hostfile.pool();
            Some(AllocatedNodes::Hosts {
                names: nodes.nodes().iter().map(|(host, _)| host.to_string()).collect(),
                launcher: has_manager.then_some(SLURM.option),
            })
        }
    })
}

/// Whether a line without `-H` has hosts: those of the default hostfile, or of an allocation.
pub(in crate::cli) fn has_usual_hosts(terminal: Terminal) -> Result<bool, CliError> {
    Ok(Path::new(pool::DEFAULT_HOSTFILE).is_file() || allocated_nodes(terminal)?.is_some())
}

/// Returns a note for a line of one node that several tasks run: each of them starts a job of its own.
/// `nodes_option` is what sets the number of nodes in such a line.
pub(in crate::cli) fn separate_tasks_note(nodes_option: &str) -> Option<String> {
    let StepTask { number, count, group, .. } = step_task()?;
    Some(format!(
        "note: this process is task {number} of {count} of {group}, and starts a job of its own; with \
         `{nodes_option} {count}` the tasks are the nodes of one job\n"
    ))
}

fn of_task(task: StepTask) -> Option<AllocatedNodes> {
    let address = meeting_address(task.first_host.as_deref()?);
    let note = address.note.filter(|_| task.number == 0);
    let tasks = TaskGroup { name: task.group };
    let node = OneByOne {
        elastic: None,
        place: NodePlace::Number(NodeRank(task.number)),
        count: task.count,
        address: address.text,
        ports: NodePorts::Agents(port_of(&task.run_id)),
        key_file: env_vars::get(env_vars::REMUDA_KEY_FILE).map(Into::into),
        run_id: task.run_id,
        local_addr: None,
        join_limit: None,
        is_task: true,
    };
    Some(AllocatedNodes::Task { node, tasks, note })
}

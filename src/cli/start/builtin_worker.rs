//! Common parts of `remuda train` and `remuda bench`, which start this executable as their workers.

use std::path::Path;

use crate::agent;
use crate::base::{Status, env_vars};
use crate::cli::args::ClusterArgs;
use crate::cli::args::values::AcceleratorArg;
use crate::cli::codes::machine::{NO_GROUP, SYSTEM};
use crate::cli::error::CliError;
use crate::cli::resolve;
use crate::launch::{CauseRule, Options, Transport};
use crate::plan::{Accelerator, JobSpec, Program};
use crate::report::{Terminal, print_message};
use crate::runtime::{Group, InitOptions};

/// Sets the accelerator of every slot to the CPU, and prints a note if GPUs are present or
/// requested.
pub(in crate::cli) fn use_cpu_slots(cluster: &mut ClusterArgs, note: &str, terminal: Terminal) {
    let cpu = AcceleratorArg::Kind(Accelerator::Cpu);
    let given = cluster.devices.accelerator.replace(cpu);
    if given == Some(cpu) {
        return;
    }
    if given == Some(AcceleratorArg::Kind(Accelerator::Cuda)) || 0 < resolve::gpu_count() {
        print_message(&format!("note: {note}; workers run on the CPU\n"), terminal.paint);
    }
}

/// Returns this executable as the program of workers, at its path on a node.
pub(in crate::cli) fn this_executable(transport: &Transport) -> Result<Program, CliError> {
    let program = match transport {
        Transport::Local => std::env::current_exe().map_err(|error| {
            CliError::new(
                Status::NotFound,
                SYSTEM,
                format!("cannot find the executable of remuda: {error}"),
            )
        })?,
        Transport::Ssh(_) | Transport::Dial(_) | Transport::Managed(_) => {
            agent::OWN_EXECUTABLE.into()
        }
    };
    Ok(Program::Exec { program: program.into(), local_rank: false })
}

/// Whether this process is a worker of a job that was started with another command, such as
/// `remuda pod`, which has the options about where the job runs.
pub(in crate::cli) fn is_worker() -> bool {
    env_vars::get(env_vars::REMUDA_RANK_FD).is_some()
}

/// Sets the rule of the cause and the output style if the workers are `remuda train` or `remuda bench`, as in
/// pods: the settings are the same as if the launcher had started them by that name.
pub(super) fn configure_builtin_worker(options: &mut Options, spec: &JobSpec) {
    let Program::Exec { program, .. } = &spec.program else { return };
    let is_own = Path::new(program).file_name().is_some_and(|name| name == "remuda");
    match spec.args.first().and_then(|word| word.to_str()).filter(|_| is_own) {
        Some("bench") => options.failure.cause_rule = CauseRule::Rank0,
        Some("train") => {}
        _ => return,
    }
    options.output.style.hide_after_peer_loss = true;
}

/// Creates the group of a worker.
pub(in crate::cli) fn join_group(options: &InitOptions) -> Result<Group, CliError> {
    Group::init(options).map_err(|error| {
        let status = if error.is_of_system() { Status::OsLimit } else { Status::Config };
        CliError::new(status, NO_GROUP, error.to_string())
    })
}

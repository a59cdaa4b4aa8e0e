//! The task of an MPI command that this process is: `mpirun -np 4 remuda run train.py`.

use rustix::process::Pid;

use crate::base::{Diagnostic, env_vars};
use crate::cli::line::{CommandLine, RefusedLine, codes};
use crate::cli::resolve::allocation::StepTask;
use crate::cli::resolve::master::LOOPBACK;
use crate::os::process::process_tree::{Stat, env_var_of};
use crate::transport::manager::kinds::{MPICH, OPEN_MPI};

/// Variables of one MPI: number of this process, number of all, number of those on this host, number of this process
/// among them.
type Variables = [&'static str; 4];

/// Those that `mpirun` of Open MPI sets.
const OPEN_MPI_VARIABLES: Variables = [
    env_vars::OMPI_COMM_WORLD_RANK,
    env_vars::OMPI_COMM_WORLD_SIZE,
    env_vars::OMPI_COMM_WORLD_LOCAL_SIZE,
    env_vars::OMPI_COMM_WORLD_LOCAL_RANK,
];
/// MPICH and its relatives. The last two variables are not those of Slurm, whose tasks have the others too.
const HYDRA_VARIABLES: Variables =
    [env_vars::PMI_RANK, env_vars::PMI_SIZE, env_vars::MPI_LOCALNRANKS, env_vars::MPI_LOCALRANKID];

/// Returns the task that this process is, if the command has several.
pub(super) fn find() -> Option<StepTask> {
    [OPEN_MPI_VARIABLES, HYDRA_VARIABLES].into_iter().find_map(|names| {
        let [number, count, of_host, local] =
            names.map(|name| env_vars::get_text(name)?.parse::<u32>().ok());
        let (number, count, of_host) = (number?, count?, of_host?);
        let is_here = of_host == count;
        (1 < count && number < count).then(|| StepTask {
            number,
            local: local.unwrap_or(0),
            count: count as usize,
            group: "mpirun".to_owned(),
            run_id: run_id(names[0], is_here),
            first_host: is_here.then(|| LOOPBACK.to_owned()),
        })
    })
}

/// Returns a name that only the tasks of this command have, as far as that is possible.
fn run_id(variable: &str, is_here: bool) -> String {
    if let Some(name) = env_vars::get_text(env_vars::PMIX_NAMESPACE).filter(|name| !name.is_empty())
    {
        return format!("mpi-{name}");
    }
    // MPICH gives its commands no name; on one host they have one parent.
    match manager(variable).filter(|_| is_here) {
        Some(pid) => format!("mpi-{pid}"),
        None => "mpi".to_owned(),
    }
}

/// Returns the nearest process above this one that was started without a variable.
fn manager(variable: &str) -> Option<Pid> {
    let mut pid = rustix::process::getppid()?;
    while env_var_of(pid, variable).is_some() {
        pid = Pid::from_raw(Stat::of(pid)?.parent)?;
    }
    Some(pid)
}

/// Returns the value of `--launcher` for the MPI that started this process.
fn launcher() -> &'static str {
    let is_open_mpi = env_vars::get(env_vars::OMPI_COMM_WORLD_RANK).is_some();
    if is_open_mpi { OPEN_MPI.option } else { MPICH.option }
}

/// Refuses a line of several tasks that names hosts: each task would start the whole job.
pub(super) fn refuse_hosts(task: &StepTask, typed: &CommandLine) -> RefusedLine {
    typed.refuse(&[typed.name_or_end("hostfile")], |spans| {
        let message = format!("each of {} tasks of mpirun would start this job", task.count);
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label("one command starts all nodes")
            .help(format!(
                "type the line without `mpirun`; `--launcher {}` starts the agents with it",
                launcher()
            ))
    })
}

/// Refuses tasks on several hosts, which do not know the host of task 0.
pub(super) fn refuse_unknown_address(task: &StepTask, typed: &CommandLine) -> RefusedLine {
    typed.refuse(&[typed.end_span()], |spans| {
        let message = format!("the host of task 0 of {} is not known", task.group);
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message)
            .label(format!("{} tasks on several hosts", task.count))
            .help(format!(
                "type `{} --launcher {} -H HOSTS` instead of `mpirun`, or give `--master_addr HOST`, \
                 the host of task 0",
                typed.program,
                launcher()
            ))
    })
}

//! Agents on this machine: one process per host of the hostfile, connected by a socket pair.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;

use super::agent::{AgentEnd, AgentHandle, Link, SessionInfo, WaitForEnd};
use super::link::split_socket;
use crate::base::{WorkerExit, clock, env_vars};
use crate::os::files::fds;
use crate::os::process::fork;
use crate::os::process::process_tree::{self, Reaped};

/// What the environment of an agent on this machine has, beside that of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentEnvironment {
    /// Address from which its workers connect to each other, if one was chosen.
    pub local_addr: Option<IpAddr>,
    /// Both ends of this node's connection to the launcher, that of the launcher first.
    pub connection: Option<(SocketAddr, SocketAddr)>,
    /// Whether a process manager started this process. Its variables about this one process are removed:
    /// workers that take part in MPI or look for Slurm's tasks would take themselves for this process.
    pub is_task: bool,
}

/// Starts an agent: `remuda agent job=… node=…`, in its own session, with the launcher's standard
/// error.
pub fn connect_local(arguments: &[OsString], environment: AgentEnvironment) -> io::Result<Link> {
    let (near, far) = fds::stream_pair()?;
    let agent = spawn(arguments, environment, far)?;
    let (reader, writer) = split_socket(near)?;
    let agent = Box::new(LocalAgent(agent));
    Ok(Link { reader, writer, agent, early: Vec::new(), session: SessionInfo::default() })
}

#[expect(clippy::disallowed_methods, reason = "a transport is what starts agents")]
fn spawn(
    arguments: &[OsString],
    environment: AgentEnvironment,
    link: OwnedFd,
) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    if let Some(local_addr) = environment.local_addr {
        command.env(env_vars::REMUDA_LOCAL_ADDR, local_addr.to_string());
    }
    if let Some((launcher, own)) = environment.connection {
        // As sshd describes it to an agent behind an ssh connection.
        let ends = [launcher, own].map(|end| format!("{} {}", end.ip().to_canonical(), end.port()));
        command.env(env_vars::REMUDA_CONNECTION, ends.join(" "));
    }
    if environment.is_task {
        for name in task_variables(env_vars::all().into_keys().map(OsString::from_vec)) {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::from(link.try_clone()?)).stdout(Stdio::from(link));
    std::os::unix::process::CommandExt::arg0(&mut command, "remuda");
    fork::in_own_session(&mut command).spawn()
}

/// Those of these variables that describe one process of a process manager.
fn task_variables(names: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    const PREFIXES: [&str; 9] = [
        "OMPI_",
        "PMIX_",
        "PMI_",
        "ORTE_",
        "PRTE_",
        "HYDRA_",
        "MPI_LOCAL",
        "SLURM_STEP_",
        "SLURM_SRUN_",
    ];
    const NAMES: [&str; 9] = [
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_TASK_PID",
        "SLURM_GTIDS",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "SLURM_DISTRIBUTION",
    ];
    names.filter(|name| {
        let name = name.to_string_lossy();
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&&*name)
    })
}

/// An agent that is a child of this process.
struct LocalAgent(Child);

impl AgentHandle for LocalAgent {
    fn pid(&self) -> Option<Pid> {
        Some(Pid::from_child(&self.0))
    }

    fn wait_for_exit(self: Box<Self>, limit: Duration) -> WaitForEnd {
        Box::pin(
            async move { AgentEnd { exit: wait_for_child(&self.0, limit).await, output: None } },
        )
    }
}

async fn wait_for_child(child: &Child, limit: Duration) -> Option<WorkerExit> {
    const PAUSE: Duration = Duration::from_micros(200);
    let deadline = clock::now() + limit;
    loop {
        match process_tree::reap_child(Pid::from_child(child)) {
            Reaped::Exited(_, exit) => return Some(exit),
            // The launcher has killed and reaped the agent of a lost node.
            Reaped::NoChildren => return None,
            Reaped::NoneExited if deadline < clock::now() => return None,
            Reaped::NoneExited => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Called by the agent: takes its link from descriptors 0 and 1.
pub fn adopt_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    fds::take_stdio()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_one_task_are_not_those_of_workers() {
        let names =
            ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_JOB_ID", "PATH", "PMI"];
        let removed: Vec<_> = task_variables(names.into_iter().map(OsString::from)).collect();
        assert_eq!(removed, names[..3]);
    }
}

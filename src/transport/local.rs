//! Agents on this machine: one process per host of the hostfile, connected by a socket pair.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;

use super::agent::{AgentEnd, AgentHandle, Link, SessionInfo, WaitForEnd};
use super::link::{LinkReader, LinkWriter};
use crate::base::{WorkerExit, clock, env_vars};
use crate::os::files::fds;
use crate::os::process::{fork, process_tree};

/// Starts an agent: `remuda agent job=… node=…`, in its own session, with the launcher's standard
/// error. Its workers connect to each other from `local_addr`, if one was chosen.
pub fn connect_local(arguments: &[OsString], local_addr: Option<IpAddr>) -> io::Result<Link> {
    let (near, far) = fds::stream_pair()?;
    let agent = spawn(arguments, local_addr, far)?;
    let reader = LinkReader::new(near.try_clone()?)?;
    let (writer, agent) = (LinkWriter::new(near)?, Box::new(LocalAgent(agent)));
    Ok(Link { reader, writer, agent, early: Vec::new(), session: SessionInfo::default() })
}

#[expect(clippy::disallowed_methods, reason = "a transport is what starts agents")]
fn spawn(arguments: &[OsString], local_addr: Option<IpAddr>, link: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    if let Some(local_addr) = local_addr {
        command.env(env_vars::REMUDA_LOCAL_ADDR, local_addr.to_string());
    }
    command.args(arguments).stdin(Stdio::from(link.try_clone()?)).stdout(Stdio::from(link));
    std::os::unix::process::CommandExt::arg0(&mut command, "remuda");
    fork::in_own_session(&mut command).spawn()
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
        let exit = process_tree::reap_one(Pid::from_child(child));
        if exit.is_some() || deadline < clock::now() {
            return exit;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Called by the agent: takes its link from descriptors 0 and 1.
pub fn adopt_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    fds::take_stdio()
}

//! Agents on this machine: one process per host of the hostfile, over a socket pair.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

use super::{LinkReader, LinkWriter};
use crate::base::WorkerExit;
use crate::os::{family, fds, fork};

/// A byte stream to an agent, and what keeps the agent.
pub struct Link {
    /// What the agent says.
    pub reader: LinkReader,
    /// What the agent is told.
    pub writer: LinkWriter,
    /// The agent's process.
    pub agent: AgentProcess,
}

/// An agent that this process started; it ends when its link does.
pub struct AgentProcess(Child);

impl AgentProcess {
    /// Its pid.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> Option<WorkerExit> {
        family::reap_one(self.pid())
    }
}

/// Starts an agent: `remuda agent job=… node=…`, in its own session, with standard error ours.
pub fn connect_local(arguments: &[OsString]) -> io::Result<Link> {
    let (ours, theirs) = fds::stream_pair()?;
    let agent = spawn(arguments, theirs)?;
    let reader = LinkReader::new(ours.try_clone()?)?;
    Ok(Link { reader, writer: LinkWriter::new(ours)?, agent: AgentProcess(agent) })
}

#[expect(clippy::disallowed_methods, reason = "a transport is what starts agents")]
fn spawn(arguments: &[OsString], link: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(Stdio::from(link.try_clone()?)).stdout(Stdio::from(link));
    std::os::unix::process::CommandExt::arg0(&mut command, "remuda");
    fork::in_own_session(&mut command).spawn()
}

/// The agent's side: takes the link that it was started with away from descriptors 0 and 1.
pub fn adopt_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    fds::take_stdio()
}

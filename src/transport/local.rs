//! Agents on this machine: one process per host of the hostfile, over a socket pair.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use super::{AgentProcess, Arrival, Link, LinkReader, LinkWriter};
use crate::os::{fds, fork};

/// Starts an agent: `remuda agent job=… node=…`, in its own session, with standard error ours.
pub fn connect_local(arguments: &[OsString]) -> io::Result<Link> {
    let (ours, theirs) = fds::stream_pair()?;
    let agent = spawn(arguments, theirs)?;
    let reader = LinkReader::new(ours.try_clone()?)?;
    let (writer, agent) = (LinkWriter::new(ours)?, AgentProcess::Local(agent));
    Ok(Link { reader, writer, agent, early: Vec::new(), arrival: Arrival::default() })
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

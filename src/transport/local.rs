//! Agents on this machine: one process per host of the hostfile, connected by a socket pair.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use super::{AgentProcess, Arrival, Link, LinkReader, LinkWriter};
use crate::base::env_vars;
use crate::os::{fds, fork};

/// Starts an agent: `remuda agent job=… node=…`, in its own session, with the launcher's standard
/// error. Its workers connect to each other from the address `at`, if one was chosen.
pub fn connect_local(arguments: &[OsString], at: Option<IpAddr>) -> io::Result<Link> {
    let (ours, theirs) = fds::stream_pair()?;
    let agent = spawn(arguments, at, theirs)?;
    let reader = LinkReader::new(ours.try_clone()?)?;
    let (writer, agent) = (LinkWriter::new(ours)?, AgentProcess::Local(agent));
    Ok(Link { reader, writer, agent, early: Vec::new(), arrival: Arrival::default() })
}

#[expect(clippy::disallowed_methods, reason = "a transport is what starts agents")]
fn spawn(arguments: &[OsString], at: Option<IpAddr>, link: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    if let Some(at) = at {
        command.env(env_vars::REMUDA_LOCAL_ADDR, at.to_string());
    }
    command.args(arguments).stdin(Stdio::from(link.try_clone()?)).stdout(Stdio::from(link));
    std::os::unix::process::CommandExt::arg0(&mut command, "remuda");
    fork::in_own_session(&mut command).spawn()
}

/// Called by the agent: takes its link from descriptors 0 and 1.
pub fn adopt_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    fds::take_stdio()
}

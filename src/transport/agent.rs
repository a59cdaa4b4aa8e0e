//! A link to an agent, and the facts that the transport has about the agent.

use std::time::Duration;

use rustix::process::Pid;

use super::link::{LinkReader, LinkWriter};
use crate::base::WorkerExit;

/// A byte stream to an agent, and a handle of the agent's process.
pub struct Link {
    /// Receives from the agent.
    pub reader: LinkReader,
    /// Sends to the agent.
    pub writer: LinkWriter,
    /// The agent's process.
    pub agent: Box<dyn AgentHandle>,
    /// Bytes of the link that have already been read.
    pub early: Vec<u8>,
    /// Facts about the connection.
    pub session: SessionInfo,
}

/// Facts about the connection to an agent; empty for an agent on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// Time until the ssh login was done.
    pub login: Option<Duration>,
    /// Time from then until the login shell ran the bootstrap command.
    pub shell: Option<Duration>,
    /// Output of start-up files before that, on standard output.
    pub noise: String,
    /// Arguments for `ssh` that reach the host with the same options.
    pub ssh_args: Option<String>,
    /// Version text of the ssh server, if ssh ran with `-v`: `OpenSSH_9.2p1`.
    pub server: Option<String>,
}

/// The end of an agent after its link has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentEnd {
    /// How the agent exited, if that can be known.
    pub exit: Option<WorkerExit>,
    /// Output of the transport about the end of the link.
    pub output: Option<String>,
}

/// The future of an agent's end.
pub type WaitForEnd = std::pin::Pin<Box<dyn Future<Output = AgentEnd> + Send>>;

/// Handle of an agent that this process started or accepted; the agent ends when its link ends.
/// Each way to start agents implements it.
pub trait AgentHandle: Send + Sync {
    /// Pid of the agent, if it is a process of this machine.
    fn pid(&self) -> Option<Pid> {
        None
    }

    /// Waits until the agent has ended, at most `limit`, and releases its connection.
    fn wait_for_exit(self: Box<Self>, limit: Duration) -> WaitForEnd;
}

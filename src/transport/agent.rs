//! A link to an agent, and the facts that the transport has about the agent.

use std::process::Child;
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::oneshot;

use super::ssh::SshAgent;
use super::{LinkReader, LinkWriter};
use crate::base::{WorkerExit, clock};
use crate::os::family;

/// A byte stream to an agent, and a handle of the agent's process.
pub struct Link {
    /// Receives from the agent.
    pub reader: LinkReader,
    /// Sends to the agent.
    pub writer: LinkWriter,
    /// The agent's process.
    pub agent: AgentProcess,
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

/// The process of an agent that the launcher started; it ends when its link ends.
pub enum AgentProcess {
    /// A child of this process.
    Local(Child),
    /// A command over an ssh connection.
    Ssh(Box<SshAgent>),
    /// A child of a process that dialled in and reports the child's exit.
    Dialled(oneshot::Receiver<Option<WorkerExit>>),
    /// A task of a test that plays an agent.
    #[cfg(test)]
    Fake,
}

/// The end of an agent after its link has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentEnd {
    /// How the agent exited, if that can be known.
    pub exit: Option<WorkerExit>,
    /// Output of the transport about the end of the link.
    pub output: Option<String>,
}

impl AgentProcess {
    /// Pid of the agent, if it is a process of this machine.
    pub fn pid(&self) -> Option<Pid> {
        match self {
            Self::Local(child) => Some(Pid::from_child(child)),
            Self::Ssh(_) | Self::Dialled(_) => None,
            #[cfg(test)]
            Self::Fake => None,
        }
    }

    /// Waits until the agent has ended, at most `limit`, and releases its connection.
    pub async fn wait_for_exit(self, limit: Duration) -> AgentEnd {
        match self {
            Self::Local(child) => {
                AgentEnd { exit: wait_for_child(&child, limit).await, output: None }
            }
            Self::Ssh(agent) => {
                let (exit, words) = agent.wait_for_exit(limit).await;
                AgentEnd { exit, output: words }
            }
            Self::Dialled(end) => {
                let received = tokio::time::timeout(limit, end).await;
                AgentEnd { exit: received.ok().and_then(Result::ok).flatten(), output: None }
            }
            #[cfg(test)]
            Self::Fake => AgentEnd::default(),
        }
    }
}

async fn wait_for_child(child: &Child, limit: Duration) -> Option<WorkerExit> {
    const PAUSE: Duration = Duration::from_micros(200);
    let deadline = clock::now() + limit;
    loop {
        let exit = family::reap_one(Pid::from_child(child));
        if exit.is_some() || deadline < clock::now() {
            return exit;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

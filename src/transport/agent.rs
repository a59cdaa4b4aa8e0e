//! A link, and what is known of the agent at its other end.

use std::process::Child;
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::oneshot;

use super::ssh::SshAgent;
use super::{LinkReader, LinkWriter};
use crate::base::{WorkerExit, clock};
use crate::os::family;

/// A byte stream to an agent, and what keeps the agent.
pub struct Link {
    /// What the agent says.
    pub reader: LinkReader,
    /// What the agent is told.
    pub writer: LinkWriter,
    /// The agent's process.
    pub agent: AgentProcess,
    /// Bytes of the link that have already been read.
    pub early: Vec<u8>,
    /// What was seen on the way.
    pub arrival: Arrival,
}

/// What was seen on the way to an agent; nothing where there was no way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time until ssh had logged in.
    pub login: Option<Duration>,
    /// Time from there until the login shell came to our command.
    pub shell: Option<Duration>,
    /// What start-up files printed before that on standard output.
    pub noise: String,
    /// What stands behind `ssh` on a line that comes there as we did.
    pub way: Option<String>,
    /// What the server calls itself, if ssh was asked to tell: `OpenSSH_9.2p1`.
    pub server: Option<String>,
}

/// An agent that we started; it ends when its link does.
pub enum AgentProcess {
    /// Our child.
    Local(Child),
    /// A command over a connection of its own.
    Ssh(Box<SshAgent>),
    /// The child of a process that dialled in, which tells how it ended.
    Dialled(oneshot::Receiver<Option<WorkerExit>>),
    /// A task of a test.
    #[cfg(test)]
    Played,
}

/// What became of an agent whose link has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentEnd {
    /// How it ended, if anybody can know.
    pub exit: Option<WorkerExit>,
    /// What the transport says about the end of the link.
    pub words: Option<String>,
}

impl AgentProcess {
    /// Its pid, if it is a process of this machine.
    pub fn pid(&self) -> Option<Pid> {
        match self {
            Self::Local(child) => Some(Pid::from_child(child)),
            Self::Ssh(_) | Self::Dialled(_) => None,
            #[cfg(test)]
            Self::Played => None,
        }
    }

    /// Waits for its end, at most `limit`, and buries what is left of the way to it.
    pub async fn bury(self, limit: Duration) -> AgentEnd {
        match self {
            Self::Local(child) => AgentEnd { exit: bury_child(&child, limit).await, words: None },
            Self::Ssh(agent) => {
                let (exit, words) = agent.bury(limit).await;
                AgentEnd { exit, words }
            }
            Self::Dialled(end) => {
                let told = tokio::time::timeout(limit, end).await;
                AgentEnd { exit: told.ok().and_then(Result::ok).flatten(), words: None }
            }
            #[cfg(test)]
            Self::Played => AgentEnd::default(),
        }
    }
}

async fn bury_child(child: &Child, limit: Duration) -> Option<WorkerExit> {
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

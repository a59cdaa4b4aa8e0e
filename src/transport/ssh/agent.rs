//! The process of an agent that was started over ssh: how it ended, and why its connection did.

use std::time::Duration;

use super::channel::{CommandChannel, CommandEnd};
use super::master::SshMaster;
use crate::transport::stderr::StderrCapture;
use crate::transport::{AgentEnd, AgentHandle, WaitForEnd};

/// An agent at the far end of an ssh connection.
pub(super) struct SshAgent {
    master: SshMaster,
    channel: CommandChannel,
    stderr: StderrCapture,
}

impl SshAgent {
    pub(super) fn new(master: SshMaster, channel: CommandChannel, stderr: StderrCapture) -> Self {
        Self { master, channel, stderr }
    }

    /// How the agent ended, if that can be known, and the output of ssh about it. Ends the
    /// connection.
    async fn end(self, limit: Duration) -> AgentEnd {
        let Self { mut master, channel, mut stderr } = self;
        let end = tokio::time::timeout(limit, channel.wait()).await.unwrap_or(CommandEnd::Unknown);
        // The agent's last output may still be in transit.
        stderr.finish(limit).await;
        let (exit, words) = match end {
            CommandEnd::Command(exit) => (Some(exit), None),
            CommandEnd::Client(exit) => {
                (None, Some(format!("the ssh process of its channel {exit}")))
            }
            CommandEnd::Unknown => (None, Some(why_lost(&mut master).await)),
        };
        master.terminate().await;
        AgentEnd { exit, output: words.filter(|words| !words.is_empty()) }
    }
}

impl AgentHandle for SshAgent {
    fn wait_for_exit(self: Box<Self>, limit: Duration) -> WaitForEnd {
        Box::pin(self.end(limit))
    }
}

/// Report about an agent that exited without a code over a connection that is open. The
/// multiplexing protocol does not report which signal it was.
pub const AGENT_KILLED: &str = "the ssh connection is open, but the agent was killed by a signal";

async fn why_lost(master: &mut SshMaster) -> String {
    const LIMIT: Duration = Duration::from_millis(100);
    match tokio::time::timeout(LIMIT, master.wait()).await {
        Ok(exit) => match (master.final_output().await.trim(), exit) {
            ("", Some(exit)) => format!("the ssh process of its connection {exit}"),
            (words, _) => words.to_owned(),
        },
        Err(_) => AGENT_KILLED.to_owned(),
    }
}

//! The agent of a node that joined: a child of the node's own launcher process, which reports its
//! exit.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::base::WorkerExit;
use crate::transport::{AgentEnd, AgentHandle, WaitForEnd};

/// Receives the exit of the agent, if the node reports it.
pub(super) struct DialledAgent(pub(super) oneshot::Receiver<Option<WorkerExit>>);

impl AgentHandle for DialledAgent {
    fn wait_for_exit(self: Box<Self>, limit: Duration) -> WaitForEnd {
        Box::pin(async move {
            let received = tokio::time::timeout(limit, self.0).await;
            AgentEnd { exit: received.ok().and_then(Result::ok).flatten(), output: None }
        })
    }
}

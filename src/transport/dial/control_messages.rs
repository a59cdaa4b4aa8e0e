//! Control messages on a dialled connection, beside the bytes of the link.

use serde::{Deserialize, Serialize};

use crate::base::{Epoch, JobId, NodeRank, Status, WorkerExit, prefix};
use crate::wire::Problem;

/// Most bytes of text in one control message; an encrypted message has room for more.
pub(super) const TEXT_BYTES_MAX: usize = 48 << 10;

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Control {
    /// The first message of a node.
    Join(Join),
    /// To a node with a different plan: requests the plan.
    ShowPlan,
    /// The plan in lines.
    Outline(Vec<String>),
    /// The node has joined, with this number.
    Joined(NodeRank),
    /// The node is refused.
    Refused(JoinRefusal),
    /// The node's launcher process received a signal, which is meant for the whole job.
    Signal(i32),
    /// The node's agent has ended.
    AgentEnded(Option<WorkerExit>),
    /// Node 0 sends nothing more to the agent.
    LinkEnded,
    /// The workers of an epoch are about to start; the number counts the restarts so
    /// far that do not count against `--max_restarts`.
    EpochStarted(Epoch, u32),
    /// The agent of this connection is no longer used, and the node must join again, over another
    /// connection and with another agent.
    Rejoin,
    /// Node 0 was requested to exit, and the job continues with another node 0.
    Leaving,
    /// The job is over.
    JobEnded(JobOver),
}

/// The request of a node to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Join {
    /// The build of its binary: a different build may have a different protocol.
    pub(super) build: String,
    /// The job that the node expects.
    pub(super) job: JobId,
    /// Digest of the plan.
    pub(super) digest: [u8; 32],
    /// Number of workers that the node's own line starts; `None`: the node starts those that node 0 sends.
    pub(super) own_workers: Option<u32>,
    /// Number of restarts that do not count against `--max_restarts`, of those in which the node took part.
    pub(super) free_restarts: u32,
    /// The name of the node's machine.
    pub(super) machine: String,
    /// Why the node cannot start its workers: with a reason it connects only to report it.
    pub(super) problems: Vec<Problem>,
}

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRefusal {
    /// The exit status of the refused process.
    pub status: u8,
    /// The message to print, in whole lines without the first word.
    pub text: String,
    /// Whether the node may be accepted later.
    pub is_transient: bool,
}

impl JoinRefusal {
    /// The refusal of a node for which a job of `nodes` nodes has no place.
    pub(super) fn complete(nodes: usize) -> Self {
        let text = format!(
            "all {nodes} nodes of this job have joined; for a larger job give every node the larger number, for another \
             job another port\n"
        );
        Self { status: Status::Config.code(), text, is_transient: true }
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOver {
    /// The exit status.
    pub status: u8,
    /// The last output of node 0.
    pub text: String,
    /// The node that caused the failure, if one did.
    pub cause: Option<NodeRank>,
}

impl JobOver {
    /// Truncates the text to [`TEXT_BYTES_MAX`].
    pub(super) fn truncated(mut self) -> Self {
        if TEXT_BYTES_MAX < self.text.len() {
            self.text.truncate(prefix(&self.text, TEXT_BYTES_MAX).len());
            self.text.push_str("…\n");
        }
        self
    }
}

//! What the ends of a dialled connection say beside the bytes of the link.

use serde::{Deserialize, Serialize};

use crate::base::{Epoch, JobId, NodeRank, WorkerExit};

/// Most text of one word; a message has room for more.
pub(super) const TEXT_BYTES_MAX: usize = 48 << 10;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Control {
    /// The first word of a node.
    Join(Join),
    /// To a node whose plan is another: show it.
    ShowPlan,
    /// The plan in lines.
    Outline(Vec<String>),
    /// The node takes part.
    Joined,
    /// It does not.
    Refused(JoinRefusal),
    /// The node's own process was sent a signal, which is meant for the whole job.
    Signal(i32),
    /// The node's agent has ended.
    AgentEnded(Option<WorkerExit>),
    /// Node 0 has nothing more to say to the agent.
    LinkEnded,
    /// The workers of an epoch are about to be started; so many epochs before followed on one that did
    /// not fail.
    Begun(Epoch, u32),
    /// What was on this connection is over, and the node is wanted once more: on another one, with
    /// another agent.
    Again,
    /// Node 0 was asked to end, and the job goes on with another one.
    Leaving,
    /// The job is over.
    Over(JobOver),
}

/// Who wants to take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Join {
    /// The build of its binary: a different one may speak differently.
    pub(super) build: String,
    /// In which job it believes to be.
    pub(super) job: JobId,
    /// Digest of the plan.
    pub(super) digest: [u8; 32],
    /// How many epochs, of those in which it has been, followed on one that did not fail.
    pub(super) uncharged: u32,
}

/// Why a node does not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRefusal {
    /// The exit status it leads to.
    pub status: u8,
    /// What to say, in whole lines without the first word.
    pub text: String,
    /// Whether it may be let in later.
    pub may_pass: bool,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOver {
    /// The exit status.
    pub status: u8,
    /// What was printed last on node 0.
    pub text: String,
    /// The node that was the cause of a failure.
    pub cause: Option<NodeRank>,
}

impl JobOver {
    /// As much of the text as fits.
    pub(super) fn clipped(mut self) -> Self {
        if TEXT_BYTES_MAX < self.text.len() {
            let mut end = TEXT_BYTES_MAX;
            while !self.text.is_char_boundary(end) {
                end -= 1;
            }
            self.text.truncate(end);
            self.text.push_str("…\n");
        }
        self
    }
}

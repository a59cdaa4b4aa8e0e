//! Which messages of a node are valid now. Later code relies on messages that pass: an invalid one
//! ends only the part of the node that sent it. Pure.

use crate::base::{NodeRank, Rank};
use crate::job::{JobState, StartFailure, StartStep};
use crate::wire::{self, FailedStart, FromAgent, Listen, PreparedNode, WorkerStartStep};

/// What the launcher expects from a node.
pub(crate) struct Expected<'a> {
    pub(crate) node: NodeRank,
    pub(crate) job: &'a JobState,
    /// The node of a rank of this epoch.
    pub(crate) node_of: &'a dyn Fn(Rank) -> Option<NodeRank>,
    /// Whether it was asked to listen, as node 0 is.
    pub(crate) listen: Option<Listen>,
}

impl Expected<'_> {
    /// Why this message is invalid.
    pub(crate) fn find_error(&self, message: &FromAgent) -> Option<String> {
        let reason = match message {
            FromAgent::Ready(_) | FromAgent::Refused(_) if !self.job.may_answer(self.node) => {
                Some("unexpected answer")
            }
            FromAgent::Ready(found) => self.find_missing(found),
            FromAgent::Refused(problems) => {
                problems.is_empty().then_some("refused without a reason")
            }
            FromAgent::StartFailed(failed) => return self.check_started(failed.rank),
            FromAgent::Started { rank, .. } | FromAgent::Exited { rank, .. } => {
                return self.check_started(*rank);
            }
            FromAgent::ErrorFile { rank, bytes, .. } => {
                if let Some(error) = self.check_started(*rank) {
                    return Some(error);
                }
                (wire::ERROR_FILE_BYTES_MAX < bytes.len()).then_some("error file too long")
            }
            FromAgent::Leftovers { rank, .. }
            | FromAgent::StdinConsumed { rank, .. }
            | FromAgent::Note { rank, .. } => return self.check_rank(*rank),
            FromAgent::Suspended(ranks) => {
                return ranks.iter().find_map(|rank| self.check_rank(*rank));
            }
            FromAgent::Idle { .. } => self.find_early_report(),
            FromAgent::Examined(_) | FromAgent::Probed(_) => Some("unexpected answer"),
            // The task that reads the link checks messages of output.
            FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. }
            | FromAgent::Hello(_)
            | FromAgent::ShimExited
            | FromAgent::ShimHung
            | FromAgent::Heartbeat
            | FromAgent::Paused
            | FromAgent::Ungrouped { .. }
            | FromAgent::Clock { .. } => None,
        };
        reason.map(protocol_error)
    }

    fn check_rank(&self, rank: Rank) -> Option<String> {
        ((self.node_of)(rank) != Some(self.node)).then(|| foreign_rank_error(rank))
    }

    fn check_started(&self, rank: Rank) -> Option<String> {
        self.check_rank(rank).or_else(|| self.find_early_report().map(protocol_error))
    }

    fn find_early_report(&self) -> Option<&'static str> {
        (!self.job.has_started(self.node)).then_some("report about workers that were not started")
    }

    /// What is missing in the answer of node 0, which determines the values that all others
    /// receive.
    fn find_missing(&self, found: &PreparedNode) -> Option<&'static str> {
        let listen = self.listen.as_ref()?;
        if found.master.is_none() {
            return Some("node 0 sent no master port");
        }
        (listen.store && found.store.is_none()).then_some("node 0 sent no store address")
    }
}

fn protocol_error(reason: &str) -> String {
    format!("protocol error: {reason}")
}

/// The reason for rejecting a message about a worker of another node.
pub(in crate::launch) fn foreign_rank_error(rank: Rank) -> String {
    protocol_error(&format!("report about rank {rank} of another node"))
}

/// Converts the failure of a start: the wire protocol and the job are versioned separately.
pub(crate) fn start_failure(failed: &FailedStart) -> StartFailure {
    let step = match failed.step {
        WorkerStartStep::SharedMemory => StartStep::SharedMemory,
        WorkerStartStep::Fork => StartStep::Fork,
        WorkerStartStep::Setup => StartStep::Setup,
        WorkerStartStep::Chdir => StartStep::Chdir,
        WorkerStartStep::Exec => StartStep::Exec,
    };
    StartFailure { step, errno: failed.errno }
}

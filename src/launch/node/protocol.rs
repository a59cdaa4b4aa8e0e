//! Which messages of a node are valid now. Later code relies on messages that pass: an invalid one
//! ends only the part of the node that sent it. Pure.

use crate::base::{NodeRank, Rank};
use crate::job::JobState;
use crate::launch::history::History;
use crate::wire::{self, FromAgent, Listen, PreparedNode};

/// What the launcher expects from a node.
pub(in crate::launch) struct Expected<'a> {
    pub(in crate::launch) node: NodeRank,
    pub(in crate::launch) job: &'a JobState,
    pub(in crate::launch) history: &'a History,
    /// Whether it was asked to listen, as node 0 is.
    pub(in crate::launch) listen: Option<Listen>,
}

impl Expected<'_> {
    /// Why this message is invalid.
    pub(in crate::launch) fn find_error(&self, message: &FromAgent) -> Option<String> {
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
        let worker = self.history.workers.get(rank.index());
        worker.is_none_or(|worker| worker.node != self.node).then(|| foreign_rank_error(rank))
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

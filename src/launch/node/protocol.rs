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
            FromAgent::Stack { rank, text } => {
                if let Some(error) = self.check_started(*rank) {
                    return Some(error);
                }
                (wire::STACK_BYTES_MAX < text.len()).then_some("stack too long")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{WorkerExit, clock};
    use crate::job::Event;
    use crate::launch::node::elastic::tests::job;
    use crate::wire::{KernelReport, MasterEndpoint, PortRequest};

    const NODE: NodeRank = NodeRank(1);

    /// Why a message of [`NODE`] is invalid, without the first words. Rank 1 is its only worker.
    fn error(job: &JobState, listen: Option<Listen>, message: &FromAgent) -> Option<String> {
        let node_of = |rank: Rank| (rank.0 < 3).then_some(NodeRank(rank.0));
        let found = Expected { node: NODE, job, node_of: &node_of, listen }.find_error(message)?;
        Some(found.strip_prefix("protocol error: ").expect("each begins so").to_owned())
    }

    fn ready(master: Option<MasterEndpoint>) -> FromAgent {
        FromAgent::Ready(PreparedNode { master, store: None, cpus: 1, notes: Vec::new() })
    }

    fn exited(rank: u32) -> FromAgent {
        FromAgent::Exited {
            rank: Rank(rank),
            exit: WorkerExit::Code(0),
            at_us: 0,
            signals_sent: Vec::new(),
            kernel: KernelReport::default(),
        }
    }

    fn running_job() -> JobState {
        let mut job = job(None);
        for node in [0, 1, 2].map(NodeRank) {
            job.step(clock::now(), Event::Ready(node));
        }
        job
    }

    #[test]
    fn answers_are_valid_once_and_reports_after_the_start() {
        let (preparing, running) = (job(None), running_job());
        assert_eq!(error(&preparing, None, &ready(None)), None);
        assert_eq!(error(&running, None, &ready(None)).as_deref(), Some("unexpected answer"));
        let early = "report about workers that were not started";
        let idle = FromAgent::Idle { unkillable: Vec::new() };
        for report in [exited(1), idle] {
            assert_eq!(error(&preparing, None, &report).as_deref(), Some(early));
            assert_eq!(error(&running, None, &report), None);
        }
    }

    #[test]
    fn ranks_of_other_nodes_and_unknown_ranks_are_invalid() {
        let job = running_job();
        for rank in [0, 2, 3] {
            let why = format!("report about rank {rank} of another node");
            let leftovers = FromAgent::Leftovers { rank: Rank(rank), processes: Vec::new() };
            let suspended = FromAgent::Suspended(vec![Rank(1), Rank(rank)]);
            for report in [exited(rank), leftovers, suspended] {
                assert_eq!(error(&job, None, &report), Some(why.clone()));
            }
        }
    }

    #[test]
    fn answers_without_what_was_asked_for_are_invalid() {
        let (job, listen) = (job(None), |store| {
            let port = PortRequest::Exact(1);
            Some(Listen { addr: None, port, others: Vec::new(), store, store_port: 0 })
        });
        let check = |store, answer: &FromAgent, expect: Option<&str>| {
            assert_eq!(error(&job, listen(store), answer).as_deref(), expect);
        };
        let master = Some(MasterEndpoint { addr: "127.0.0.1".to_owned(), port: 1 });
        check(false, &ready(None), Some("node 0 sent no master port"));
        check(true, &ready(master.clone()), Some("node 0 sent no store address"));
        check(false, &ready(master), None);
        let nothing = FromAgent::Refused(Vec::new());
        check(false, &nothing, Some("refused without a reason"));
    }

    #[test]
    fn error_files_and_stacks_have_a_limit() {
        let job = running_job();
        let file = |len| FromAgent::ErrorFile { rank: Rank(1), at_us: 0, bytes: vec![0; len] };
        assert_eq!(error(&job, None, &file(wire::ERROR_FILE_BYTES_MAX)), None);
        let long = error(&job, None, &file(wire::ERROR_FILE_BYTES_MAX + 1));
        assert_eq!(long.as_deref(), Some("error file too long"));
        let stack = |len| FromAgent::Stack { rank: Rank(1), text: vec![0; len] };
        assert_eq!(error(&job, None, &stack(wire::STACK_BYTES_MAX)), None);
        let long = error(&job, None, &stack(wire::STACK_BYTES_MAX + 1));
        assert_eq!(long.as_deref(), Some("stack too long"));
    }
}

//! Why a job failed, as data; which of several failures it was is decided in `root_cause`.

use std::collections::BTreeMap;
use std::time::Instant;

use super::evidence::Evidence;
use super::failure_texts::FailureClass;
use super::stopping::{SIGABRT, SIGKILL, SIGTERM};
use crate::base::{NodeRank, Rank, Status, WorkerExit};

/// How a worker ended, with what is needed to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnd {
    /// Rank of the worker.
    pub rank: Rank,
    /// How the worker exited.
    pub exit: WorkerExit,
    /// When, on the launcher's clock.
    pub at: Instant,
    /// Signals that we had sent it before.
    pub sent: Vec<i32>,
}

impl WorkerEnd {
    /// A death by a signal that nobody of us sent: the strongest evidence there is.
    pub(super) fn is_violent(&self) -> bool {
        matches!(self.exit, WorkerExit::Signal { signal, .. } if !self.sent.contains(&signal))
    }

    /// A death by a signal that we sent.
    pub(super) fn is_of_our_making(&self) -> bool {
        matches!(self.exit, WorkerExit::Signal { signal, .. } if self.sent.contains(&signal))
    }

    /// A signal ended it that neither remuda nor the program itself sent: a program that aborts says
    /// why.
    pub(super) fn is_killed(&self) -> bool {
        let aborted = matches!(self.exit, WorkerExit::Signal { signal: SIGABRT, .. });
        self.is_violent() && !aborted
    }

    /// Killed in the way that no program brings about by itself.
    pub fn is_killed_from_outside(&self) -> bool {
        self.is_violent() && matches!(self.exit, WorkerExit::Signal { signal: SIGKILL, .. })
    }

    /// Its node was lost, and its end with it.
    pub(super) fn is_lost(&self) -> bool {
        self.exit == WorkerExit::Lost
    }

    /// A failure that we did not bring about by stopping the job.
    pub(super) fn is_own_failure(&self) -> bool {
        match self.exit {
            WorkerExit::Code(0) | WorkerExit::Lost => false,
            WorkerExit::Code(_) | WorkerExit::Signal { .. } => {
                self.is_violent() || self.sent.is_empty()
            }
        }
    }
}

/// How a node was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLoss {
    /// Its link ended without a word; how the agent ended, where that can be known.
    LinkClosed(Option<WorkerExit>),
    /// Nothing was heard for the length of the lease.
    Silent,
    /// The shim died and took its workers along.
    ShimDied,
    /// The shim did not answer for the length of the lease and was killed with its workers.
    ShimFrozen,
    /// It spoke a language that we do not know.
    Garbled(String),
    /// It was asked to end by SIGTERM.
    Leaves,
}

impl NodeLoss {
    /// Whether all of it is gone, as far as is known: neither a fault of what we run there, which it
    /// would show again, nor a wish.
    pub(super) fn is_of_whole_node(&self) -> bool {
        match self {
            Self::LinkClosed(None) | Self::Silent => true,
            Self::LinkClosed(Some(_))
            | Self::ShimDied
            | Self::ShimFrozen
            | Self::Garbled(_)
            | Self::Leaves => false,
        }
    }

    /// Whether the agent lives on without a shim.
    pub(super) fn is_of_shim(&self) -> bool {
        matches!(self, Self::ShimDied | Self::ShimFrozen)
    }
}

/// Why a worker did not become its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// How far it came.
    pub step: StartStep,
    /// The kernel's reason.
    pub errno: i32,
}

/// The steps of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    /// Pipes, and the process itself.
    Fork,
    /// Session and descriptors.
    Setup,
    /// The working directory.
    Chdir,
    /// The program.
    Exec,
}

impl StartFailure {
    fn status(self) -> Status {
        const ENOENT: i32 = 2;
        match self.step {
            StartStep::Fork | StartStep::Setup => Status::OsLimit,
            StartStep::Chdir => Status::NoInput,
            StartStep::Exec if self.errno == ENOENT => Status::NotFound,
            StartStep::Exec => Status::NotExecutable,
        }
    }
}

/// Why the job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// A worker.
    Worker(WorkerEnd),
    /// A worker that gave up on its peers, which ended first: it was stopped before it ended by itself.
    GaveUp {
        /// Rank of the worker.
        rank: Rank,
        /// The end of a peer that had heard of it.
        told: WorkerEnd,
    },
    /// A worker that had reported its failure and was stopped before it exited.
    Exiting {
        /// Which.
        rank: Rank,
        /// The first worker that failed by itself, if one did.
        first: Option<WorkerEnd>,
    },
    /// Workers without which the others could not go on, and which reported nothing themselves.
    Missing {
        /// Which.
        ranks: Vec<Rank>,
        /// What the others reported.
        reported: FailureClass,
        /// The first worker that failed because of it.
        first: WorkerEnd,
    },
    /// A worker that never became its program.
    NotStarted {
        /// Rank of the worker.
        rank: Rank,
        /// At which step, and why.
        failure: StartFailure,
    },
    /// A node.
    Node {
        /// The node.
        node: NodeRank,
        /// How the node was lost.
        loss: NodeLoss,
    },
}

impl FailureCause {
    /// The exit status that tells this cause.
    pub fn status(&self) -> Status {
        match self {
            Self::Worker(WorkerEnd { exit: WorkerExit::Lost, .. }) => Status::LeaseLost,
            Self::Worker(end)
            | Self::GaveUp { told: end, .. }
            | Self::Exiting { first: Some(end), .. }
            | Self::Missing { first: end, .. } => Status::Worker(end.exit.shell_status()),
            Self::Exiting { first: None, .. } => Status::Worker(1),
            Self::NotStarted { failure, .. } => failure.status(),
            Self::Node { loss, .. } => match loss {
                NodeLoss::LinkClosed(Some(exit))
                    if *exit == WorkerExit::Code(Status::Bug.code()) =>
                {
                    Status::Bug
                }
                NodeLoss::LinkClosed(Some(exit))
                    if *exit == WorkerExit::Code(Status::Protocol.code()) =>
                {
                    Status::Protocol
                }
                NodeLoss::LinkClosed(_)
                | NodeLoss::Silent
                | NodeLoss::ShimDied
                | NodeLoss::ShimFrozen => Status::LeaseLost,
                NodeLoss::Garbled(_) => Status::Protocol,
                NodeLoss::Leaves => Status::Interrupted(SIGTERM),
            },
        }
    }
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The exit status.
    pub status: Status,
    /// The first failure, if there was one.
    pub cause: Option<FailureCause>,
    /// Nodes other than the cause that were lost.
    pub also_lost: Vec<NodeRank>,
    /// Workers other than the cause that failed without our doing.
    pub also_failed: usize,
    /// Workers other than the cause that ended because we stopped them.
    pub stopped: usize,
    /// Nodes that have not said that nothing is left.
    pub unconfirmed: Vec<NodeRank>,
    /// What workers reported.
    pub reports: Box<WorkerReports>,
}

/// What workers reported of a failure themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerReports {
    /// The worker that is the cause.
    pub evidence: Option<Evidence>,
    /// Other workers, of a lost connection.
    pub lost_peer: Vec<Rank>,
    /// Other workers, that they waited in vain.
    pub timed_out: Vec<Rank>,
}

/// Everything that went wrong beside the ends of workers.
#[derive(Default)]
pub(super) struct Failures {
    pub(super) nodes: Vec<(Instant, NodeRank, NodeLoss)>,
    pub(super) not_started: Vec<(Instant, Rank, StartFailure)>,
    /// Who reported the loss of whom.
    pub(super) blamed: Vec<(Rank, Rank)>,
    /// What workers that failed left behind about it.
    pub(super) evidence: BTreeMap<Rank, Evidence>,
    /// When workers were asked to stop, if they were.
    pub(super) stopped_at: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_of_a_node_has_its_status() {
        #[track_caller]
        fn check(loss: NodeLoss, status: u8) {
            assert_eq!(FailureCause::Node { node: NodeRank(0), loss }.status().code(), status);
        }
        check(NodeLoss::LinkClosed(None), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(0))), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Signal { signal: 9, core: false })), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(70))), 70);
        check(NodeLoss::Silent, 75);
        check(NodeLoss::ShimDied, 75);
        check(NodeLoss::ShimFrozen, 75);
        check(NodeLoss::Leaves, 143);
        check(NodeLoss::Garbled("a frame contains no known message".to_owned()), 76);
    }

    #[test]
    fn why_a_worker_did_not_start_decides_the_status() {
        let status = |step, errno| {
            FailureCause::NotStarted { rank: Rank(0), failure: StartFailure { step, errno } }
                .status()
        };
        assert_eq!(status(StartStep::Fork, 11), Status::OsLimit);
        assert_eq!(status(StartStep::Chdir, 2), Status::NoInput);
        assert_eq!(status(StartStep::Exec, 2), Status::NotFound);
        assert_eq!(status(StartStep::Exec, 8), Status::NotExecutable);
    }
}

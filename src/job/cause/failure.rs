//! Cause of a failed job, as data. `root_cause` selects it among several failures.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::base::{NodeRank, Rank, Status, WorkerExit};
use crate::job::cause::evidence::Evidence;
use crate::job::cause::known_texts::FailureClass;
use crate::job::signal_numbers::{SIGABRT, SIGKILL, SIGTERM};

/// The exit of a worker, with the facts that are needed to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnd {
    /// Rank of the worker.
    pub rank: Rank,
    /// How the worker exited.
    pub exit: WorkerExit,
    /// When the worker exited, on the launcher's clock.
    pub at: Instant,
    /// Signals that remuda had sent to the worker before.
    pub signals_sent: Vec<i32>,
}

impl WorkerEnd {
    /// Whether a signal that remuda did not send ended the worker: the strongest evidence there is.
    pub(crate) fn is_killed_by_foreign_signal(&self) -> bool {
        matches!(self.exit, WorkerExit::Signal { signal, .. } if !self.signals_sent.contains(&signal))
    }

    /// Whether a signal that remuda sent ended the worker.
    pub(crate) fn is_killed_by_remuda(&self) -> bool {
        matches!(self.exit, WorkerExit::Signal { signal, .. } if self.signals_sent.contains(&signal))
    }

    /// Whether a signal that neither remuda nor the program itself sent ended the worker: a program
    /// that aborts prints the reason.
    pub(crate) fn is_killed(&self) -> bool {
        let aborted = matches!(self.exit, WorkerExit::Signal { signal: SIGABRT, .. });
        self.is_killed_by_foreign_signal() && !aborted
    }

    /// Whether SIGKILL from outside ended the worker; no program brings that about by itself.
    pub fn is_killed_from_outside(&self) -> bool {
        self.is_killed_by_foreign_signal()
            && matches!(self.exit, WorkerExit::Signal { signal: SIGKILL, .. })
    }

    /// Whether the worker's node was lost, and the worker with it.
    pub(crate) fn is_lost(&self) -> bool {
        self.exit == WorkerExit::Lost
    }

    /// Whether the worker failed without being stopped by remuda.
    pub(crate) fn is_own_failure(&self) -> bool {
        match self.exit {
            WorkerExit::Code(0) | WorkerExit::Lost => false,
            WorkerExit::Code(_) | WorkerExit::Signal { .. } => {
                self.is_killed_by_foreign_signal() || self.signals_sent.is_empty()
            }
        }
    }
}

/// How a node was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLoss {
    /// The link ended without a final message; with the exit of the agent where it is known.
    LinkClosed(Option<WorkerExit>),
    /// No heartbeat was received for the length of the lease.
    LeaseExpired,
    /// The shim exited, and its workers with it.
    ShimExited,
    /// The shim did not answer for the length of the lease and was killed with its workers.
    ShimNotResponding,
    /// The agent sent data that is no valid message.
    InvalidData(String),
    /// The node was asked to end by SIGTERM.
    Evicted,
}

impl NodeLoss {
    /// Whether the whole node is gone, as far as is known: this is neither a fault of remuda's
    /// processes there, which would recur, nor a request.
    pub(crate) fn is_whole_node(&self) -> bool {
        match self {
            Self::LinkClosed(None) | Self::LeaseExpired => true,
            Self::LinkClosed(Some(_))
            | Self::ShimExited
            | Self::ShimNotResponding
            | Self::InvalidData(_)
            | Self::Evicted => false,
        }
    }

    /// Whether a new agent on the node would fail in the same way: it has a bug, or another protocol.
    pub(crate) fn would_recur(&self) -> bool {
        match self {
            Self::InvalidData(_) => true,
            Self::LinkClosed(Some(exit)) => match AgentExitReason::of(*exit) {
                AgentExitReason::InternalError | AgentExitReason::InvalidData => true,
                AgentExitReason::LeaseExpired | AgentExitReason::Unknown => false,
            },
            Self::LinkClosed(None)
            | Self::LeaseExpired
            | Self::ShimExited
            | Self::ShimNotResponding
            | Self::Evicted => false,
        }
    }

    /// Whether it is known when the node was lost at the earliest: the loss is noticed when it happens, or after a
    /// silence.
    pub(crate) fn has_known_begin(&self) -> bool {
        match self {
            Self::LinkClosed(Some(_))
            | Self::LeaseExpired
            | Self::ShimExited
            | Self::InvalidData(_)
            | Self::Evicted => true,
            Self::LinkClosed(None) | Self::ShimNotResponding => false,
        }
    }

    /// Whether the agent still runs, without a shim.
    pub(crate) fn is_shim_failure(&self) -> bool {
        matches!(self, Self::ShimExited | Self::ShimNotResponding)
    }
}

/// What the exit of an agent means for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentExitReason {
    /// The agent found a bug of remuda.
    InternalError,
    /// The agent received no heartbeat for the length of the lease and stopped its workers.
    LeaseExpired,
    /// The agent received data that is no valid message.
    InvalidData,
    /// The exit alone does not tell the reason.
    Unknown,
}

impl AgentExitReason {
    pub(crate) fn of(exit: WorkerExit) -> Self {
        let WorkerExit::Code(code) = exit else { return Self::Unknown };
        match code {
            _ if code == Status::Bug.code() => Self::InternalError,
            _ if code == Status::LeaseLost.code() => Self::LeaseExpired,
            _ if code == Status::Protocol.code() => Self::InvalidData,
            _ => Self::Unknown,
        }
    }
}

/// Why a worker could not execute its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// The step that failed.
    pub step: StartStep,
    /// The kernel's reason.
    pub errno: i32,
}

/// The steps of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    /// Creation of the memory that the workers of a node share.
    SharedMemory,
    /// Creation of the pipes and the process.
    Fork,
    /// Session and file descriptors.
    Setup,
    /// Change to the working directory.
    Chdir,
    /// Execution of the program.
    Exec,
}

impl StartFailure {
    fn status(self) -> Status {
        const ENOENT: i32 = 2;
        match self.step {
            StartStep::SharedMemory | StartStep::Fork | StartStep::Setup => Status::OsLimit,
            StartStep::Chdir => Status::NoInput,
            StartStep::Exec if self.errno == ENOENT => Status::NotFound,
            StartStep::Exec => Status::NotExecutable,
        }
    }
}

/// Why the job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// A worker failed.
    Worker(WorkerEnd),
    /// A worker gave up on its peers, which exited first, and was stopped before it exited by
    /// itself.
    GaveUp {
        /// Rank of the worker.
        rank: Rank,
        /// The exit of a peer that had detected the failure of this worker.
        detector: WorkerEnd,
    },
    /// A worker had reported its failure and was stopped before it exited.
    Exiting {
        /// Rank of the worker.
        rank: Rank,
        /// The first worker that failed by itself, if there is one.
        first: Option<WorkerEnd>,
    },
    /// Workers without which the others could not go on, and which reported nothing themselves.
    MissingRanks {
        /// Ranks of the missing workers.
        ranks: Vec<Rank>,
        /// What the others reported.
        reported_class: FailureClass,
        /// The exit of the first worker that failed because of them.
        first: WorkerEnd,
    },
    /// A worker could not execute its program.
    NotStarted {
        /// Rank of the worker.
        rank: Rank,
        /// The step that failed, and the reason.
        failure: StartFailure,
    },
    /// A node was lost.
    Node {
        /// Rank of the lost node.
        node: NodeRank,
        /// How the node was lost.
        loss: NodeLoss,
    },
}

impl FailureCause {
    /// The exit status for this cause.
    pub fn status(&self) -> Status {
        match self {
            Self::Worker(WorkerEnd { exit: WorkerExit::Lost, .. }) => Status::LeaseLost,
            Self::Worker(end)
            | Self::GaveUp { detector: end, .. }
            | Self::Exiting { first: Some(end), .. }
            | Self::MissingRanks { first: end, .. } => Status::Worker(end.exit.shell_status()),
            Self::Exiting { first: None, .. } => Status::Worker(1),
            Self::NotStarted { failure, .. } => failure.status(),
            Self::Node { loss, .. } => match loss {
                NodeLoss::LinkClosed(Some(exit)) => match AgentExitReason::of(*exit) {
                    AgentExitReason::InternalError => Status::Bug,
                    AgentExitReason::InvalidData => Status::Protocol,
                    AgentExitReason::LeaseExpired | AgentExitReason::Unknown => Status::LeaseLost,
                },
                NodeLoss::LinkClosed(None)
                | NodeLoss::LeaseExpired
                | NodeLoss::ShimExited
                | NodeLoss::ShimNotResponding => Status::LeaseLost,
                NodeLoss::InvalidData(_) => Status::Protocol,
                NodeLoss::Evicted => Status::Interrupted(SIGTERM),
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
    /// Number of workers other than the cause that failed without being stopped by remuda.
    pub also_failed: usize,
    /// Number of workers other than the cause that remuda stopped.
    pub stopped: usize,
    /// Nodes that have not confirmed that no process is left.
    pub unconfirmed: Vec<NodeRank>,
    /// Failure reports of the workers.
    pub reports: Box<WorkerReports>,
}

/// What workers themselves reported about a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerReports {
    /// The report of the worker that is the cause.
    pub evidence: Option<Evidence>,
    /// The exception of the first worker that failed because of missing ones.
    pub first_exception: Option<String>,
    /// Whether that worker was joining the process group.
    pub was_joining: bool,
    /// Other workers that reported the same exception.
    pub same_exception: Vec<Rank>,
    /// Other workers that reported a lost connection.
    pub lost_peer: Vec<Rank>,
    /// Those of them that another rank told of the failure.
    pub was_told: Vec<Rank>,
    /// Other workers that reported a timeout while waiting for a peer.
    pub timed_out: Vec<Rank>,
}

/// A node that was lost.
#[derive(Clone, Debug)]
pub(crate) struct LostNode {
    pub(crate) node: NodeRank,
    pub(crate) loss: NodeLoss,
    /// When that was noticed.
    pub(crate) at: Instant,
    /// When it was lost at the earliest, as far as is known.
    pub(crate) since: Instant,
}

/// All failures other than the exits of workers.
#[derive(Default)]
pub(crate) struct Failures {
    pub(crate) nodes: Vec<LostNode>,
    pub(crate) unstarted: Vec<(Instant, Rank, StartFailure)>,
    /// Reported losses of peers: the reporter and the lost peer.
    pub(crate) peer_losses: Vec<(Rank, Rank)>,
    /// What failed workers left behind about their failures.
    pub(crate) evidence: BTreeMap<Rank, Evidence>,
    /// When workers were asked to stop, if they were.
    pub(crate) stopped_at: Option<Instant>,
    /// Number of workers that were started.
    pub(crate) workers: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_loss_selects_exit_status() {
        #[track_caller]
        fn check(loss: NodeLoss, status: u8) {
            assert_eq!(FailureCause::Node { node: NodeRank(0), loss }.status().code(), status);
        }
        check(NodeLoss::LinkClosed(None), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(0))), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Signal { signal: 9, core: false })), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(70))), 70);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(75))), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(76))), 76);
        check(NodeLoss::LeaseExpired, 75);
        check(NodeLoss::ShimExited, 75);
        check(NodeLoss::ShimNotResponding, 75);
        check(NodeLoss::Evicted, 143);
        check(NodeLoss::InvalidData("a frame contains no known message".to_owned()), 76);
    }

    #[test]
    fn start_failure_selects_exit_status() {
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

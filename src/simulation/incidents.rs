//! What really happened in a run, by which its verdict is judged.

use super::clock::Micros;
use super::scenario::InjectedKind;
use crate::base::{Epoch, NodeRank, Rank, WorkerExit};
use crate::job::Verdict;

/// Something that may be the cause of a failed epoch.
#[derive(Clone, Debug)]
pub(super) struct Incident {
    pub(super) at: Micros,
    /// When it may have happened at the earliest, as far as the launcher can know.
    pub(super) since: Micros,
    /// Until when it can still end an epoch.
    pub(super) until: Micros,
    pub(super) blame: Blame,
}

/// What a verdict must name for an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    Worker {
        rank: Rank,
        epoch: Epoch,
        exit: WorkerExit,
    },
    /// A worker that failed because another one did.
    Witness {
        rank: Rank,
        epoch: Epoch,
        exit: WorkerExit,
    },
    NotStarted(NodeRank),
    Node(NodeRank),
    Evicted(NodeRank),
    AnyNode,
}

/// A time in which the launcher receives nothing from a node, or from any.
#[derive(Clone, Copy, Debug)]
pub(super) struct InjectedSilence {
    /// The one that may be lost by it.
    pub(super) of: Blame,
    /// When it began, or the one before with which it overlaps.
    pub(super) begin: Micros,
    pub(super) end: Micros,
}

/// How an epoch ended, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    WorkerFailed,
    NodeLost,
    NotStarted,
    Evicted,
    Refused,
    Interrupted,
    TimedOut,
    LauncherGone,
    Newcomer,
}

impl Ending {
    pub(super) const ALL: [Self; 10] = [
        Self::Success,
        Self::WorkerFailed,
        Self::NodeLost,
        Self::NotStarted,
        Self::Evicted,
        Self::Refused,
        Self::Interrupted,
        Self::TimedOut,
        Self::LauncherGone,
        Self::Newcomer,
    ];
}

/// A broken promise: the check that found it, and what it found.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    pub(super) check: Check,
    pub(super) text: String,
}

/// The checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Every node ends exactly once, and so does every worker.
    EndsOnce,
    /// At most one epoch's workers live on a node.
    OneEpoch,
    /// The cause is the first injected fault.
    Cause,
    /// The exit status is true.
    ExitStatus,
    /// Queues are bounded.
    BoundedQueues,
    /// Every event has an end.
    Liveness,
    /// Remuda's processes understand each other.
    Protocol,
    /// Workers run on nodes that are ready, as many as are allowed, and only these nodes count.
    Members,
    /// Only failures use restarts.
    Charge,
}

/// What happened so far.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a run")]
#[derive(Default)]
pub(super) struct Truth {
    pub(super) incidents: Vec<Incident>,
    /// When the present epoch began.
    pub(super) epoch_began_at: Micros,
    /// When the job received the first failure of the epoch before.
    pub(super) previously_noticed_at: Option<Micros>,
    /// When the job received the first failure of this epoch.
    pub(super) noticed_at: Option<Micros>,
    /// Signals of the user that the launcher has received.
    pub(super) user_signals: Vec<i32>,
    /// Signals of processes on nodes that the launcher has received.
    pub(super) node_signals: Vec<i32>,
    pub(super) has_timed_out: bool,
    /// How often a fault of each kind has hit something.
    pub(super) faults: [u32; InjectedKind::COUNT],
    pub(super) silences: Vec<InjectedSilence>,
    /// Whether the launcher was suspended while it stopped this epoch: its time limits passed, and
    /// it may know only workers that lost their peers, not the node that was lost.
    pub(super) gave_up_suspended: bool,
    /// Whether the user has suspended the job.
    pub(super) was_suspended: bool,
    /// When the last worker exited.
    pub(super) last_exit_at: Micros,
    /// Nodes that have truly refused, or were out of reach when they were needed.
    pub(super) refusals: u32,
    /// Until when the last fault lasts.
    pub(super) disturbed_until: Micros,
    /// Whether the reports of the workers arrived in time, in this epoch.
    pub(super) has_evidence: bool,
    pub(super) restarts: u32,
    /// The nodes of an elastic job.
    pub(super) membership: MemberTruth,
    pub(super) verdict: Option<Verdict>,
    /// The verdict of the epoch before.
    pub(super) previous: Option<Verdict>,
    /// The ends of all epochs that ended.
    pub(super) endings: Vec<Ending>,
    pub(super) launcher_gone_at: Option<Micros>,
    pub(super) violation: Option<Violation>,
}

/// What happened to the nodes of an elastic job.
#[derive(Debug, Default)]
pub(super) struct MemberTruth {
    /// The node of each rank of the epoch that was started last.
    pub(super) node_of_rank: Vec<NodeRank>,
    /// The epoch that was started last.
    pub(super) epoch: Option<Epoch>,
    /// When the workers were stopped for a newcomer.
    pub(super) stopped_for_newcomer_at: Option<Micros>,
    /// Number of workers before such a stop, as long as nothing else has happened to the nodes.
    pub(super) workers_before: Option<usize>,
    /// Number of restarts of this launcher after failures, and of all others.
    pub(super) charged: u32,
    pub(super) free: u32,
    /// Number of restarts after failures of the launchers before it, and whether a node has told it about them: if
    /// no node is left that knows of them, it begins to count again.
    pub(super) charged_before: u32,
    pub(super) was_told: bool,
}

impl MemberTruth {
    /// A launcher takes the place of another one.
    pub(super) fn begin_launcher(&mut self) {
        let charged_before = self.charged_before + self.charged;
        *self = Self { charged_before, ..Self::default() };
    }

    /// Number of restarts after failures, as far as the launcher can know.
    pub(super) fn known_charged(&self) -> u32 {
        self.charged + if self.was_told { self.charged_before } else { 0 }
    }

    pub(super) fn is_member(&self, node: NodeRank) -> bool {
        self.node_of_rank.contains(&node)
    }
}

impl Truth {
    /// Notes a broken promise; the first one counts.
    pub(super) fn fail(&mut self, check: Check, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { check, text: text() });
        }
    }
}

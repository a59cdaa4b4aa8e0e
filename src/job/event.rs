//! Input and output of the job's state machine: events that happen to a job, effects to perform.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::base::{Epoch, NodeRank, Rank};
use crate::job::cause::evidence::Evidence;
use crate::job::cause::failure::{NodeLoss, StartFailure, Verdict, WorkerEnd};

/// Settings of a job that the state machine follows.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Time between the request to stop and SIGKILL.
    pub grace: Duration,
    /// What a failure means for the other workers.
    pub failure: OnFailure,
    /// Time after which a node without a message is certainly given up as lost.
    pub silence_max: Duration,
    /// Maximum number of restarts after a failure.
    pub restarts_max: u32,
    /// Pause before the first restart after a failure. If the workers soon fail again, the next pauses are longer.
    pub first_pause: Duration,
    /// The signal that workers receive before they are asked to stop.
    pub warning: Option<Warning>,
    /// What SIGTERM for a process of remuda means.
    pub on_term: OnTerm,
    /// What the loss of a node means on which nothing was started.
    pub early_loss: OnEarlyLoss,
    /// Whether the launcher can collect what workers reported about their failures.
    pub has_evidence: bool,
    /// How the number of nodes may vary; `None`: all nodes take part always.
    pub elastic: Option<ElasticNodes>,
}

/// How the number of nodes may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElasticNodes {
    /// Smallest number of nodes on which workers run.
    pub min: usize,
    /// Largest number of nodes on which workers run; further nodes stand ready as spares.
    pub max: usize,
    /// Where nodes and launcher meet.
    pub meeting: MeetingPoint,
    /// Time that a start waits for more nodes once the smallest number is ready.
    pub last_call: Duration,
    /// When nodes that join later take part.
    pub newcomers: Newcomers,
    /// Whether nodes that have failed [`FAILURES_MAX`] times are left out, as long as enough others are there.
    pub excludes_failing: bool,
    /// Number that the number of workers divides, if it must divide one.
    pub lanes: Option<usize>,
}

/// Number of failures after which a node may be left out: one can be chance.
pub const FAILURES_MAX: u32 = 2;

/// Where the nodes of a job whose number may vary meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeetingPoint {
    /// At node 0, which always takes part: the other nodes join it when they are started. Only the first start
    /// waits for more nodes.
    Node0,
    /// At the launcher, which connects to the nodes: any of them may be missing.
    Launcher,
}

/// When nodes take part that join while workers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Newcomers {
    /// At once: the workers are restarted for them.
    #[default]
    AtOnce,
    /// When the workers are restarted for another reason.
    AtNextStart,
}

/// A signal that is sent before SIGTERM, so that workers can save their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Number of the signal.
    pub signal: i32,
    /// How long before SIGTERM it is sent.
    pub ahead: Duration,
}

/// What a failure means for the other workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// All other workers are stopped.
    StopAll,
    /// The other workers run on, and the verdict follows when all have exited.
    LetRun,
}

/// What SIGTERM for a process of remuda means while restarts are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTerm {
    /// The job is to end.
    #[default]
    EndJob,
    /// The node is to end and another one will take its place: a pod that is evicted.
    EndNode,
}

/// What the loss of a node means before its workers have been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnEarlyLoss {
    /// The job cannot start.
    EndJob,
    /// The job waits for a replacement: the system that starts the nodes starts another one.
    AwaitReplacement,
}

/// A node without a heartbeat for the length of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentNode {
    /// Rank of the node.
    pub node: NodeRank,
    /// Time of its last message.
    pub since: Instant,
}

/// An event that may happen to a job.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node can start its workers.
    Ready(NodeRank),
    /// A node cannot start its workers; the launcher keeps its reasons.
    Refused(NodeRank),
    /// A node whose own line decides how many workers it starts has joined.
    OwnWorkers {
        /// The node that joined.
        node: NodeRank,
        /// Number of its workers.
        workers: usize,
    },
    /// A node has joined a job whose number of nodes may vary.
    Arrived(NodeRank),
    /// A node cannot be reached now, in a job whose number of nodes may vary.
    Absent(NodeRank),
    /// The time in which enough nodes had to join is over.
    JoinTimeOver,
    /// A node has taken part in every epoch before this one, under a launcher that this one
    /// replaces.
    EarlierEpochs {
        /// The first epoch in which the node has not taken part.
        epoch: Epoch,
        /// Number of restarts that do not count against `--max_restarts`: no failure caused them.
        free_restarts: u32,
    },
    /// A worker executes its program.
    Started(Rank),
    /// A worker could not execute its program.
    NotStarted {
        /// Rank of the worker.
        rank: Rank,
        /// The step that failed, and the reason.
        failure: StartFailure,
    },
    /// A worker reports that it lost a peer.
    PeerLost {
        /// The worker that reports it.
        rank: Rank,
        /// The lost peer.
        peer: Rank,
    },
    /// A worker exited.
    Exited(WorkerEnd),
    /// A node has no process of the job left, except those that could not be killed.
    Idle {
        /// Rank of the idle node.
        node: NodeRank,
        /// Whether no process is left at all.
        is_clean: bool,
    },
    /// The answer to [`Effect::CollectEvidence`].
    Evidence(BTreeMap<Rank, Evidence>),
    /// A node was lost.
    NodeLost {
        /// Rank of the lost node.
        node: NodeRank,
        /// How the node was lost.
        loss: NodeLoss,
        /// When it was lost at the earliest, if that is before the event: when its link ended, or when a silence
        /// began in which it was lost.
        since: Option<Instant>,
    },
    /// Nodes without a heartbeat for the length of the lease: all are lost at once. The first of them, which has
    /// been silent longest, is the cause.
    LeaseExpired(Vec<SilentNode>),
    /// The user sent a signal.
    Signal(i32),
    /// A process of remuda on a node received a signal that is meant for the job.
    NodeSignal(NodeRank, i32),
    /// `--timeout` was reached.
    TimedOut,
    /// The instant requested with [`Effect::Wake`] was reached.
    Timer,
    /// All processes, the launcher included, were suspended for this time (Ctrl-Z): it does not
    /// count.
    Suspended(Duration),
    /// The launcher did not run for this time; its workers may have run.
    Stalled(Duration),
}

/// What the launcher must do after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start the workers of every node.
    Start,
    /// Signal every worker's process group.
    Signal(i32),
    /// Send the warning signal to every worker's process group, and report it.
    Warn(Warning),
    /// Kill all processes on every node.
    Kill,
    /// Send [`Event::Timer`] at this instant; replaces an earlier request.
    Wake(Instant),
    /// Report to the user why and how the job is being stopped.
    ReportStopping(StopReason),
    /// Show only this worker from now on; the output of the others goes only to their files.
    ShowOnly(Rank),
    /// Report to the user that workers are being killed now.
    ReportKilling,
    /// Collect what these workers reported about their failures; the cause is determined after
    /// that.
    CollectEvidence(Vec<Rank>),
    /// Wait before the next epoch: all workers have exited, and they are restarted after the pause.
    PauseBeforeRestart {
        /// How the epoch ended.
        verdict: Verdict,
        /// Number of the next epoch.
        next: Epoch,
        /// Length of the pause.
        pause: Duration,
    },
    /// Begin a new epoch: ask every node whether it can start. The listed nodes need a new link
    /// first.
    BeginEpoch(Vec<NodeRank>),
    /// Wait for replacements of nodes that were lost before anything was started, and ask those.
    Replace(Vec<NodeRank>),
    /// Ask every node again, in this epoch: nodes have been in epochs before the one in which they
    /// were asked.
    SkipToEpoch(Epoch),
}

/// Why a job is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A worker or a node failed.
    Failure,
    /// A node was asked to end, and another one will take its place.
    Eviction,
    /// A node has joined; the workers are started again with it.
    Arrival,
    /// `--timeout` was reached.
    Timeout,
    /// The user sent a signal.
    Signal(i32),
}

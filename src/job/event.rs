//! What may happen to a job, and what is to be done about it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::cause::{NodeLoss, StartFailure, Verdict, WorkerEnd};
use super::evidence::Evidence;
use crate::base::{Epoch, NodeRank, Rank};

/// What a job is allowed to take.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Time between asking workers to stop and killing them.
    pub grace: Duration,
    /// What a failure means for the others.
    pub failure: OnFailure,
    /// How often workers are started anew after a failure.
    pub restarts_max: u32,
    /// What workers hear before they are asked to stop.
    pub warning: Option<Warning>,
    /// What SIGTERM for one of our processes means.
    pub on_term: OnTerm,
    /// What the loss of a node means that has not started anything.
    pub early_loss: OnEarlyLoss,
    /// Whether what workers reported about their failures can be asked for.
    pub has_evidence: bool,
}

/// A signal that comes before TERM, so that workers can save what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The signal.
    pub signal: i32,
    /// How long before.
    pub ahead: Duration,
}

/// What a failure means for the other workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They are stopped.
    StopAll,
    /// They run on, and the verdict comes when all have ended.
    LetRun,
}

/// What SIGTERM for one of our processes means while restarts are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTerm {
    /// The job is to end.
    #[default]
    EndsJob,
    /// The node is to end, and another one will be in its place: a pod that is evicted.
    EndsNode,
}

/// What the loss of a node means whose workers have not been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnEarlyLoss {
    /// The job cannot start.
    EndsJob,
    /// Nothing is lost but time: whoever starts nodes starts another one in its place.
    AwaitsAnother,
}

/// What may happen to a job.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node could start its workers.
    Ready(NodeRank),
    /// A node could not; its reasons are with whoever asked.
    Refused(NodeRank),
    /// A node has been in every epoch before this one, with a launcher in whose place we are.
    Fresh {
        /// This one.
        epoch: Epoch,
        /// How many of those before were no restart after a failure.
        uncharged: u32,
    },
    /// A worker became its program.
    Started(Rank),
    /// A worker did not become its program.
    NotStarted {
        /// Rank of the worker.
        rank: Rank,
        /// At which step, and why.
        failure: StartFailure,
    },
    /// A worker says that it lost a peer.
    PeerLost {
        /// Who says it.
        rank: Rank,
        /// Whom it lost.
        peer: Rank,
    },
    /// A worker ended.
    Exited(WorkerEnd),
    /// Nothing of the job is left on a node, but for what could not be killed.
    Idle {
        /// The node.
        node: NodeRank,
        /// Whether really nothing is.
        is_clean: bool,
    },
    /// The answer to [`Effect::CollectEvidence`].
    Evidence(BTreeMap<Rank, Evidence>),
    /// A node was lost.
    NodeLost {
        /// The node.
        node: NodeRank,
        /// How the node was lost.
        loss: NodeLoss,
    },
    /// Nothing was heard of these for the length of the lease: all are lost at once.
    Silent(Vec<NodeRank>),
    /// The user sent a signal.
    Signal(i32),
    /// A process of ours on a node was sent one that is meant for the job.
    SignalAt(NodeRank, i32),
    /// The time that the user allowed is over.
    TimedOut,
    /// The time asked for with [`Effect::Wake`] has come.
    Timer,
    /// Everybody, we included, has stood still so long (Ctrl-Z): this time does not count.
    StoodStill(Duration),
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start the workers of every node.
    Start,
    /// Signal every worker's process group.
    Signal(i32),
    /// Send every worker's process group the signal that comes before the others, and say so.
    Warn(Warning),
    /// Kill everything on every node.
    Kill,
    /// Send [`Event::Timer`] then; replaces an earlier wish.
    Wake(Instant),
    /// Tell the user why and how the job is being stopped.
    Stopping(StopReason),
    /// From now on show only this worker; the others go on in their files.
    ShowOnly(Rank),
    /// Tell the user that workers are being killed now.
    Killing,
    /// Collect what these workers reported about their failures: the cause is named after that.
    CollectEvidence(Vec<Rank>),
    /// Every worker is over, and this is why; they are started anew after so long.
    Rest {
        /// How the epoch ended.
        verdict: Verdict,
        /// Which start comes next.
        next: Epoch,
        /// Until when nothing happens.
        pause: Duration,
    },
    /// A new epoch begins: ask every node whether it can start. To these there must be a new link
    /// first.
    Renew(Vec<NodeRank>),
    /// Nodes are gone before anything was started: ask whoever comes in their place.
    Replace(Vec<NodeRank>),
    /// Nodes have been in epochs before the one in which they were asked: ask every node again, in this
    /// one.
    Skip(Epoch),
}

/// Why a job is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A worker or a node failed.
    Failure,
    /// A node was asked to end, and another one will be in its place.
    Leaving,
    /// `--timeout` ran out.
    Timeout,
    /// The user sent a signal.
    Signal(i32),
}

//! State of a job and [`Job::step`], the only place where it changes. The other files of this
//! module handle the events.

use std::collections::BTreeMap;
use std::time::Instant;

use super::cause::{Failures, Verdict, WorkerEnd};
use super::event::{Effect, Event, Policy, StopReason};
use super::requests::Requests;
use crate::base::{Epoch, NodeRank, Rank};

/// One job, from the first answer of a node to the verdict.
pub struct Job {
    pub(super) policy: Policy,
    pub(super) epoch: Epoch,
    /// The first epoch in which no node has taken part.
    pub(super) fresh: Epoch,
    /// Number of epochs that did not follow a failure.
    pub(super) uncharged: u32,
    /// When the workers of this epoch were started.
    pub(super) began: Option<Instant>,
    /// Number of consecutive epochs that failed soon after their start.
    pub(super) short_epochs: u32,
    /// Verdict of the previous epoch.
    pub(super) before: Option<Verdict>,
    /// Node of each rank, in the order of the nodes.
    pub(super) node_of_rank: Vec<NodeRank>,
    pub(super) nodes: Vec<NodeState>,
    pub(super) ends: Vec<WorkerEnd>,
    pub(super) ended: Vec<bool>,
    pub(super) failures: Failures,
    /// Whether a process could not be killed.
    pub(super) is_dirty: bool,
    /// Requests to end that the launcher received.
    pub(super) requests: Requests,
    /// Requests to end that remuda's processes on nodes received; they count like the launcher's.
    pub(super) requests_at: BTreeMap<NodeRank, u32>,
    /// The largest number of requests that one process received: a scheduler that signals every
    /// node makes one request.
    pub(super) asked: u32,
    pub(super) phase: JobPhase,
}

/// A node in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    Asked,
    Ready,
    Refused,
    Running,
    Idle,
    Lost,
}

/// The phase of a job; each phase contains its deadlines.
pub(super) enum JobPhase {
    Preparing,
    Running,
    Stopping {
        reason: StopReason,
        stage: StopStage,
    },
    /// All workers have exited, and their reports are being collected.
    Concluding {
        reason: StopReason,
        until: Instant,
    },
    /// The pause between two epochs.
    Resting {
        until: Instant,
    },
    Done(Verdict),
}

/// Stage of stopping the workers; a later stage outranks an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopStage {
    Warned { signal: i32, ask_at: Instant },
    Interrupted { term_at: Instant, kill_at: Instant },
    Terminated { kill_at: Instant },
    Killed { give_up_at: Instant },
}

impl Job {
    /// Creates a job whose nodes have been asked whether they can start.
    pub fn new(policy: Policy, node_of_rank: Vec<NodeRank>) -> Self {
        debug_assert!(node_of_rank.is_sorted(), "ranks are counted through the nodes");
        let ended = vec![false; node_of_rank.len()];
        let count = node_of_rank.iter().map(|node| node.index() + 1).max().unwrap_or(0);
        Self {
            policy,
            epoch: Epoch(0),
            fresh: Epoch(0),
            uncharged: 0,
            began: None,
            short_epochs: 0,
            before: None,
            node_of_rank,
            nodes: vec![NodeState::Asked; count],
            ends: Vec::new(),
            ended,
            failures: Failures::default(),
            is_dirty: false,
            requests: Requests::default(),
            requests_at: BTreeMap::new(),
            asked: 0,
            phase: JobPhase::Preparing,
        }
    }

    /// The verdict, once the job has ended.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.phase {
            JobPhase::Done(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// Whether the workers have been asked to stop.
    pub fn is_stopping(&self) -> bool {
        matches!(
            self.phase,
            JobPhase::Stopping { .. } | JobPhase::Concluding { .. } | JobPhase::Done(_)
        )
    }

    /// Whether not all nodes have answered yet whether they can start.
    pub fn is_preparing(&self) -> bool {
        matches!(self.phase, JobPhase::Preparing)
    }

    /// The number of this start.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Number of restarts so far that did not follow a failure.
    pub fn uncharged(&self) -> u32 {
        self.uncharged
    }

    /// Whether a node may answer whether it can start: it has not answered, or it was lost
    /// meanwhile.
    pub fn may_answer(&self, node: NodeRank) -> bool {
        matches!(self.nodes[node.index()], NodeState::Asked | NodeState::Lost)
    }

    /// Whether a node has been asked to start its workers.
    pub fn has_started(&self, node: NodeRank) -> bool {
        match self.nodes[node.index()] {
            NodeState::Running | NodeState::Idle | NodeState::Lost => true,
            NodeState::Asked | NodeState::Ready | NodeState::Refused => false,
        }
    }

    /// All exits of workers that were reported in this epoch.
    pub fn ends(&self) -> &[WorkerEnd] {
        &self.ends
    }

    /// Number of workers that have been started and not yet been lost, as far as is known.
    pub fn running(&self) -> usize {
        if matches!(self.phase, JobPhase::Preparing | JobPhase::Resting { .. }) {
            return 0;
        }
        let lost = |node: &NodeRank| self.failures.nodes.iter().any(|(_, lost, _)| lost == node);
        let over = |rank: Rank| self.ended[rank.index()] || self.never_started(rank);
        let ranks = (0..).map(Rank).zip(&self.node_of_rank);
        ranks.filter(|(rank, node)| !over(*rank) && !lost(node)).count()
    }

    pub(super) fn never_started(&self, rank: Rank) -> bool {
        self.failures.not_started.iter().any(|(_, other, _)| *other == rank)
    }

    /// Applies an event to the job and returns the effects: the only place where the job changes.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        if self.verdict().is_some() {
            return Vec::new();
        }
        let mut effects = match event {
            Event::Ready(node) => self.node_answered(now, node, NodeState::Ready),
            Event::Refused(node) => self.node_answered(now, node, NodeState::Refused),
            Event::Fresh { epoch, uncharged } => {
                self.fresh = self.fresh.max(epoch);
                self.uncharged = self.uncharged.max(uncharged);
                Vec::new()
            }
            Event::Started(_) => Vec::new(),
            Event::NotStarted { rank, failure } => self.not_started(now, rank, failure),
            Event::PeerLost { rank, peer } => self.peer_lost(rank, peer),
            Event::Exited(end) => self.exited(now, end),
            Event::Evidence(evidence) => self.conclude_with(now, evidence),
            Event::Idle { node, is_clean } => self.node_idle(now, node, is_clean),
            Event::NodeLost { node, loss } => self.node_lost(now, node, loss),
            Event::Silent(nodes) => self.fell_silent(now, &nodes),
            Event::Signal(signal) => self.signalled(now, signal),
            Event::SignalAt(node, signal) => self.signalled_at(now, node, signal),
            Event::TimedOut => self.timed_out(now),
            Event::Timer => self.wake(now),
            Event::StoodStill(time) => self.put_off(time),
        };
        effects.extend(self.end_epoch_if_over(now));
        effects.extend(self.next_wake().map(Effect::Wake));
        effects
    }
}

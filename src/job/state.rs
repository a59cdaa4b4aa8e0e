//! The state of a job, and [`Job::step`], the only place where it changes. What happens in a step is
//! told story by story in the files beside this one.

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
    /// The first epoch in which no node has been.
    pub(super) fresh: Epoch,
    /// Epochs that followed on one that nothing was wrong with.
    pub(super) uncharged: u32,
    /// When its workers were started.
    pub(super) began: Option<Instant>,
    /// Epochs in a row that failed soon after their start.
    pub(super) short_epochs: u32,
    /// How the epoch before ended.
    pub(super) before: Option<Verdict>,
    /// In the order of the nodes.
    pub(super) node_of_rank: Vec<NodeRank>,
    pub(super) nodes: Vec<NodeState>,
    pub(super) ends: Vec<WorkerEnd>,
    pub(super) ended: Vec<bool>,
    pub(super) failures: Failures,
    /// Whether something could not be killed.
    pub(super) is_dirty: bool,
    /// Requests to end that came to us.
    pub(super) requests: Requests,
    /// Those that came to our processes on nodes, which count as we do.
    pub(super) requests_at: BTreeMap<NodeRank, u32>,
    /// The most that came to any of us: a scheduler that signals every node asks once.
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

pub(super) enum JobPhase {
    Preparing,
    Running,
    Stopping {
        reason: StopReason,
        stage: StopStage,
    },
    /// Everything is over, and what workers reported about it is being collected.
    Concluding {
        reason: StopReason,
        until: Instant,
    },
    /// Between two epochs.
    Resting {
        until: Instant,
    },
    Done(Verdict),
}

/// How hard we have asked; a later stage outranks an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopStage {
    Warned { signal: i32, ask_at: Instant },
    Interrupted { term_at: Instant, kill_at: Instant },
    Terminated { kill_at: Instant },
    Killed { give_up_at: Instant },
}

impl Job {
    /// A job whose nodes have been asked whether they can start.
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

    /// How the job ended, once it has.
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

    /// Whether it is still open who can start.
    pub fn is_preparing(&self) -> bool {
        matches!(self.phase, JobPhase::Preparing)
    }

    /// Which start this is.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Restarts so far that were no failure's.
    pub fn uncharged(&self) -> u32 {
        self.uncharged
    }

    /// Whether a node may say whether it can start: it has not, or it was lost meanwhile.
    pub fn may_answer(&self, node: NodeRank) -> bool {
        matches!(self.nodes[node.index()], NodeState::Asked | NodeState::Lost)
    }

    /// Whether a node has been told to start its workers.
    pub fn has_started(&self, node: NodeRank) -> bool {
        match self.nodes[node.index()] {
            NodeState::Running | NodeState::Idle | NodeState::Lost => true,
            NodeState::Asked | NodeState::Ready | NodeState::Refused => false,
        }
    }

    /// Every end heard of in this epoch.
    pub fn ends(&self) -> &[WorkerEnd] {
        &self.ends
    }

    /// Workers that have been started and not yet been lost, as far as is known.
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

    /// The only place where the job changes.
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

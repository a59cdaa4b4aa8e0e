//! State of a job and [`JobState::step`], the only place where it changes. The other files of this
//! module handle the events.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::base::{Epoch, NodeRank, Rank};
use crate::job::cause::failure::{Failures, LostNode, Verdict, WorkerEnd};
use crate::job::event::{Effect, Event, MeetingPoint, Policy, StopReason};
use crate::job::requests::Requests;
use crate::job::state::epoch_numbers::EpochNumbers;

/// One job, from the first answer of a node to the verdict.
pub struct JobState {
    pub(crate) policy: Policy,
    pub(crate) epochs: EpochNumbers,
    /// When the workers of this epoch were started.
    pub(crate) workers_started_at: Option<Instant>,
    /// Number of consecutive epochs that failed soon after their start.
    pub(crate) short_epochs: u32,
    /// Verdict of the previous epoch.
    pub(crate) previous_verdict: Option<Verdict>,
    /// All nodes that may take part, by number.
    pub(crate) nodes: Vec<JobNode>,
    /// The workers of this epoch by rank, in the order of their nodes.
    pub(crate) workers: Vec<JobWorker>,
    pub(crate) ends: Vec<WorkerEnd>,
    pub(crate) failures: Failures,
    /// Whether a process could not be killed.
    pub(crate) is_dirty: bool,
    /// Requests to end that the launcher received.
    pub(crate) requests: Requests,
    /// Requests to end that remuda's processes on nodes received; they count like the launcher's.
    pub(crate) node_request_counts: BTreeMap<NodeRank, u32>,
    /// The largest number of requests that one process received: a scheduler that signals every
    /// node makes one request.
    pub(crate) request_count: u32,
    pub(crate) phase: JobPhase,
    /// When workers start although more nodes may join.
    pub(crate) last_call_until: Option<Instant>,
    /// Whether the time is over in which enough nodes had to join.
    pub(crate) is_join_time_over: bool,
}

/// A node of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobNode {
    pub(crate) state: NodeState,
    /// Number of its workers.
    pub(crate) workers: usize,
    /// How often it was lost while workers ran, or a worker on it was the cause of a failure.
    pub(crate) faults: u32,
}

/// A worker of this epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobWorker {
    pub(crate) node: NodeRank,
    /// Whether it has exited, is lost, or was not to be started.
    pub(crate) has_ended: bool,
}

impl JobWorker {
    /// A worker of a node that has not ended.
    pub(crate) fn new(node: NodeRank) -> Self {
        Self { node, has_ended: false }
    }
}

/// A node in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// No node has this number; one may join. Only if the number of nodes may vary.
    Vacant,
    /// It stands ready and has no part in this epoch: it has joined while workers run, or it is a spare.
    Standby,
    /// It was asked whether it can start.
    Preparing,
    Ready,
    Refused,
    Running,
    Idle,
    Lost,
}

/// The phase of a job; each phase contains its deadlines.
pub(crate) enum JobPhase {
    Preparing,
    Running,
    Stopping {
        reason: StopReason,
        stage: StopStage,
    },
    /// All workers have exited, and their reports are being collected.
    CollectingEvidence {
        reason: StopReason,
        until: Instant,
    },
    /// The pause between two epochs.
    PausedBeforeRestart {
        until: Instant,
    },
    Done(Verdict),
}

/// Stage of stopping the workers; a later stage outranks an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopStage {
    Warned { signal: i32, ask_at: Instant },
    Interrupted { term_at: Instant, kill_at: Instant },
    Terminated { kill_at: Instant },
    Killed { give_up_at: Instant },
}

impl JobState {
    /// Creates a job whose nodes have been asked whether they can start.
    pub fn new(policy: Policy, node_of_rank: Vec<NodeRank>) -> Self {
        debug_assert!(node_of_rank.is_sorted(), "ranks are counted through the nodes");
        let count = node_of_rank.iter().map(|node| node.index() + 1).max().unwrap_or(0);
        let node = JobNode { state: NodeState::Preparing, workers: 0, faults: 0 };
        let mut nodes = vec![node; count];
        for node in &node_of_rank {
            nodes[node.index()].workers += 1;
        }
        if policy.elastic.is_some_and(|elastic| elastic.meeting == MeetingPoint::Node0) {
            nodes[1..].iter_mut().for_each(|node| node.state = NodeState::Vacant);
        }
        Self {
            policy,
            epochs: EpochNumbers::default(),
            workers_started_at: None,
            short_epochs: 0,
            previous_verdict: None,
            nodes,
            workers: node_of_rank.into_iter().map(JobWorker::new).collect(),
            ends: Vec::new(),
            failures: Failures::default(),
            is_dirty: false,
            requests: Requests::default(),
            node_request_counts: BTreeMap::new(),
            request_count: 0,
            phase: JobPhase::Preparing,
            last_call_until: None,
            is_join_time_over: false,
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
            JobPhase::Stopping { .. } | JobPhase::CollectingEvidence { .. } | JobPhase::Done(_)
        )
    }

    /// Whether not all nodes have answered yet whether they can start.
    pub fn is_preparing(&self) -> bool {
        matches!(self.phase, JobPhase::Preparing)
    }

    /// The number of this start.
    pub fn epoch(&self) -> Epoch {
        self.epochs.current()
    }

    /// Number of restarts so far that do not count against `--max_restarts`.
    pub fn free_restarts(&self) -> u32 {
        self.epochs.free_restarts()
    }

    /// Whether a node may answer whether it can start: it has not answered, or it was lost
    /// meanwhile.
    pub fn may_answer(&self, node: NodeRank) -> bool {
        matches!(self.nodes[node.index()].state, NodeState::Preparing | NodeState::Lost)
    }

    /// Number of workers that a node has in an epoch in which it takes part.
    pub fn workers_of(&self, node: NodeRank) -> usize {
        self.nodes[node.index()].workers
    }

    /// Whether a node has been asked to start its workers.
    pub fn has_started(&self, node: NodeRank) -> bool {
        match self.nodes[node.index()].state {
            NodeState::Running | NodeState::Idle | NodeState::Lost => true,
            NodeState::Vacant
            | NodeState::Standby
            | NodeState::Preparing
            | NodeState::Ready
            | NodeState::Refused => false,
        }
    }

    /// All exits of workers that were reported in this epoch.
    pub fn ends(&self) -> &[WorkerEnd] {
        &self.ends
    }

    /// Number of workers that have been started and not yet been lost, as far as is known.
    pub fn running(&self) -> usize {
        if matches!(self.phase, JobPhase::Preparing | JobPhase::PausedBeforeRestart { .. }) {
            return 0;
        }
        let lost = |node: NodeRank| self.failures.nodes.iter().any(|lost| lost.node == node);
        let runs = |(rank, worker): &(Rank, &JobWorker)| {
            !worker.has_ended && !self.has_failed_to_start(*rank) && !lost(worker.node)
        };
        (0..).map(Rank).zip(&self.workers).filter(runs).count()
    }

    /// Whether any node is in this state.
    pub(crate) fn has_node_in(&self, state: NodeState) -> bool {
        self.nodes.iter().any(|node| node.state == state)
    }

    pub(crate) fn has_failed_to_start(&self, rank: Rank) -> bool {
        self.failures.unstarted.iter().any(|(_, other, _)| *other == rank)
    }

    /// Applies an event to the job and returns the effects: the only place where the job changes.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        if self.verdict().is_some() {
            return Vec::new();
        }
        let mut effects = match event {
            Event::Ready(node) => self.on_node_answer(now, node, NodeState::Ready),
            Event::Refused(node) => self.on_node_answer(now, node, NodeState::Refused),
            Event::OwnWorkers { node, workers } => {
                self.nodes[node.index()].workers = workers;
                Vec::new()
            }
            Event::Arrived(node) => self.on_node_arrived(now, node),
            Event::Absent(node) => self.on_node_absent(now, node),
            Event::JoinTimeOver => self.on_join_time_over(now),
            Event::EarlierEpochs { epoch, free_restarts } => {
                self.epochs.on_earlier_epochs(epoch, free_restarts);
                Vec::new()
            }
            Event::Started(_) => Vec::new(),
            Event::NotStarted { rank, failure } => self.on_worker_not_started(now, rank, failure),
            Event::PeerLost { rank, peer } => self.on_peer_lost(rank, peer),
            Event::Exited(end) => self.on_worker_exited(now, end),
            Event::Evidence(evidence) => self.on_evidence(now, evidence),
            Event::Idle { node, is_clean } => self.on_node_idle(now, node, is_clean),
            Event::NodeLost { node, loss, since } => {
                let since = since.unwrap_or(now);
                self.on_node_lost(now, LostNode { node, loss, at: now, since })
            }
            Event::LeaseExpired(nodes) => self.on_leases_expired(now, &nodes),
            Event::Signal(signal) => self.on_signal(now, signal),
            Event::NodeSignal(node, signal) => self.on_node_signal(now, node, signal),
            Event::TimedOut => self.on_timeout(now),
            Event::Timer => self.on_timer(now),
            Event::Suspended(time) => self.postpone_deadlines(now, time),
            Event::Stalled(time) => self.await_longer(time),
        };
        effects.extend(self.end_epoch_if_over(now));
        effects.extend(self.next_deadline().map(Effect::Wake));
        effects
    }
}

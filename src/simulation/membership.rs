//! The nodes of an elastic job: which of them a launcher starts, what stops their workers, and which restarts
//! count, compared with what is allowed.

use super::clock::MS;
use super::incidents::Check;
use super::processes::{EndReason, SimulatedWorker};
use super::world::Simulation;
use crate::base::{NodeRank, Rank, Status};
use crate::job::{
    Effect, ElasticNodes, Event, FailureCause, MeetingPoint, NodeLoss, StopReason, Verdict,
    WorkerEnd,
};

const SIGTERM: i32 = 15;

impl Simulation {
    fn elastic(&self) -> Option<ElasticNodes> {
        self.scenario.policy.elastic
    }

    /// The node of a rank, in the epoch that was started last.
    pub(super) fn node_of(&self, rank: Rank) -> Option<NodeRank> {
        if self.elastic().is_some() {
            return self.truth.membership.node_of_rank.get(rank.index()).copied();
        }
        let mut first = 0;
        let mut nodes = (0..).map(NodeRank).zip(&self.scenario.workers);
        let found = nodes.find(|(_, workers)| {
            first += *workers;
            rank.0 < first
        });
        found.map(|(node, _)| node)
    }

    /// Number of workers of the epoch that was started last; of a job with a fixed number of nodes, of all.
    pub(super) fn world_size(&self) -> usize {
        match self.elastic() {
            Some(_) => self.truth.membership.node_of_rank.len(),
            None => self.scenario.habits.len(),
        }
    }

    /// Whether workers ran on a node in the epoch that was started last.
    pub(super) fn had_part(&self, node: NodeRank) -> bool {
        self.truth.membership.is_member(node)
    }

    /// Checks the nodes on which workers are started.
    pub(super) fn check_members(&mut self, node_of_rank: Vec<NodeRank>) {
        let Some(elastic) = self.elastic() else { return };
        let mut members = node_of_rank.clone();
        members.dedup();
        let table = &self.launcher.table;
        let is_ready = |node: &NodeRank| table.prepared(*node).is_some() && !table.is_lost(*node);
        let world = node_of_rank.len();
        let before = self.truth.membership.workers_before.take();
        let why = if members.len() < elastic.min || elastic.max < members.len() {
            Some("their number is not allowed")
        } else if !members.iter().all(is_ready) {
            Some("one of them is not ready")
        } else if elastic.lanes.is_some_and(|lanes| !lanes.is_multiple_of(world)) {
            Some("their workers cannot share the lanes")
        } else if elastic.meeting == MeetingPoint::Node0 && !members.contains(&NodeRank(0)) {
            Some("node 0 is missing")
        } else if world != self.launcher.job.running() {
            Some("the job counts other workers")
        } else if before.is_some_and(|before| world <= before) {
            Some("a newcomer has brought no worker")
        } else {
            None
        };
        if let Some(why) = why {
            self.truth.fail(Check::Members, || format!("workers start on {members:?}: {why}"));
        }
        let epoch = self.launcher.job.epoch();
        let membership = &mut self.truth.membership;
        (membership.node_of_rank, membership.epoch) = (node_of_rank, Some(epoch));
        membership.stopped_for_newcomer_at = None;
    }

    /// Checks what stops the workers: no node without a part in the epoch does.
    pub(super) fn check_stop(&mut self, event: &Event, effects: &[Effect]) {
        if self.elastic().is_none() {
            return;
        }
        let reason = effects.iter().find_map(|effect| match effect {
            Effect::ReportStopping(reason) => Some(*reason),
            _ => None,
        });
        let membership = &mut self.truth.membership;
        let nodes = match event {
            Event::NodeLost { node, .. } | Event::NodeSignal(node, SIGTERM) => vec![*node],
            Event::LeaseExpired(lost) => lost.iter().map(|lost| lost.node).collect(),
            Event::Refused(_) | Event::Absent(_) | Event::Exited(_) | Event::NotStarted { .. } => {
                if !matches!(event, Event::Exited(end) if !end.signals_sent.is_empty()) {
                    membership.workers_before = None;
                }
                return;
            }
            Event::Arrived(_) => {
                membership.workers_before = None;
                if reason == Some(StopReason::Arrival) {
                    membership.stopped_for_newcomer_at = Some(self.agenda.now);
                    membership.workers_before = Some(membership.node_of_rank.len());
                }
                return;
            }
            _ => return,
        };
        membership.workers_before = None;
        let has_part = nodes.iter().any(|node| membership.is_member(*node));
        if let (Some(reason), false) = (reason, has_part) {
            self.truth.fail(Check::Members, || {
                format!("{nodes:?} without a part stop the workers: {reason:?}")
            });
        }
    }

    /// Checks the end of an epoch after which an elastic job restarts.
    pub(super) fn check_restart(&mut self, verdict: &Verdict) {
        if self.elastic().is_none() {
            return;
        }
        self.check_blamed_node(verdict);
        let is_charged = is_failure(verdict);
        if !is_charged && self.has_finished() {
            self.truth.fail(Check::ExitStatus, || "a job that has succeeded restarts".to_owned());
        }
        let membership = &mut self.truth.membership;
        membership.charged += u32::from(is_charged);
        membership.free += u32::from(!is_charged);
        let (charged, free) = (membership.known_charged(), membership.free);
        let (counted, allowed) =
            (self.launcher.job.free_restarts(), self.scenario.policy.restarts_max);
        let is_first = self.launcher.number == 0;
        if allowed < charged || is_first && counted != free {
            self.truth.fail(Check::Charge, || {
                format!("{charged} of {allowed} restarts, {free} free ones counted as {counted}")
            });
        }
    }

    /// Checks a restart for a newcomer: one has joined, and no worker had failed long before.
    pub(super) fn check_newcomer(&mut self) {
        let window = super::checks::COMPETITION + self.scenario.delay_max + MS;
        let Some(at) = self.truth.membership.stopped_for_newcomer_at else {
            return self.truth.fail(Check::Cause, || "no node has joined".to_owned());
        };
        if let Some(earlier) = self.earlier_failure(at.saturating_sub(window)) {
            self.truth.fail(Check::Cause, || format!("restarts for a newcomer after {earlier:?}"));
        }
    }

    /// Checks the end of an elastic job: it goes on while restarts are left.
    pub(super) fn check_last_restart(&mut self, verdict: &Verdict) {
        let job = &self.launcher.job;
        let was_started = self.truth.membership.epoch == Some(job.epoch());
        if self.elastic().is_none() || !was_started {
            return;
        }
        self.check_blamed_node(verdict);
        let is_asked = !self.truth.user_signals.is_empty() || self.truth.has_timed_out;
        let is_clean = verdict.unconfirmed.is_empty() && !self.launcher.job.is_dirty;
        let may_pass = !matches!(verdict.cause, None | Some(FailureCause::NotStarted { .. }));
        let is_left = self.truth.membership.charged < self.scenario.policy.restarts_max;
        let is_first = self.launcher.number == 0 && self.truth.node_signals.is_empty();
        if may_pass && is_clean && !is_asked && is_left && is_first {
            self.truth.fail(Check::Charge, || "ends although a restart is left".to_owned());
        }
    }

    /// A lost node that is the cause had a part in the epoch.
    fn check_blamed_node(&mut self, verdict: &Verdict) {
        let Some(FailureCause::Node { node, .. }) = verdict.cause else { return };
        if !self.truth.membership.is_member(node) {
            self.truth.fail(Check::Members, || format!("node {node} had no part, and is blamed"));
        }
    }

    /// Whether every worker of this epoch has done its work, as far as the launcher knows.
    fn has_finished(&self) -> bool {
        let has_finished = |rank: u32| {
            let is_it =
                |worker: &&SimulatedWorker| worker.rank == Rank(rank) && self.is_of_epoch(worker);
            let exit = self.workers.iter().find(is_it).and_then(|worker| worker.exit);
            exit.is_some_and(|(_, reason)| reason == EndReason::Finished)
        };
        let ends = self.launcher.job.ends();
        // A worker that exits with 0 after SIGTERM may have saved its state only.
        let has_succeeded = |end: &WorkerEnd| end.exit.is_success() && end.signals_sent.is_empty();
        let is_known = ends.iter().all(has_succeeded);
        is_known && (0..self.world_size() as u32).all(has_finished)
    }

    /// Whether no allowed number of the nodes that are ready can share the lanes.
    pub(super) fn cannot_share_lanes(&self) -> bool {
        let Some(ElasticNodes { min, max, lanes: Some(lanes), .. }) = self.elastic() else {
            return false;
        };
        let table = &self.launcher.table;
        let is_ready = |node: &NodeRank| table.prepared(*node).is_some() && !table.is_lost(*node);
        let ready = table.all().filter(is_ready).count();
        let each = self.scenario.workers[0] as usize;
        !(min..=max.min(ready)).any(|count| lanes.is_multiple_of(count * each))
    }

    /// Whether a job whose workers were stopped for a newcomer could not go on.
    pub(super) fn is_stuck_after_newcomer(&self, verdict: &Verdict) -> bool {
        let is_unclean = !verdict.unconfirmed.is_empty() || self.launcher.job.is_dirty;
        verdict.status == Status::LeaseLost
            && is_unclean
            && self.truth.membership.stopped_for_newcomer_at.is_some()
    }
}

/// Whether a failure is the cause, and not a node that was asked to leave.
fn is_failure(verdict: &Verdict) -> bool {
    match &verdict.cause {
        None | Some(FailureCause::Node { loss: NodeLoss::Evicted, .. }) => false,
        Some(_) => true,
    }
}

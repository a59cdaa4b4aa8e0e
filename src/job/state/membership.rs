//! Jobs whose number of nodes may vary: who takes part in an epoch, and when it begins.
//!
//! A node keeps its number while it is in the job. Ranks belong to an epoch: they are counted through the nodes
//! that take part in it. A number without a node is vacant, and any node that joins may get it.

use std::time::Instant;

use crate::base::NodeRank;
use crate::job::cause::failure::{FailureCause, NodeLoss, Verdict};
use crate::job::event::{Effect, ElasticNodes, MeetingPoint, Newcomers, StopReason};
use crate::job::signal_numbers::SIGTERM;
use crate::job::state::job_state::{JobNode, JobPhase, JobState, JobWorker, NodeState};

impl NodeState {
    /// Whether the node has no part in the current epoch, or no longer.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Vacant | Self::Standby | Self::Refused | Self::Idle | Self::Lost => true,
            Self::Preparing | Self::Ready | Self::Running => false,
        }
    }
}

impl JobState {
    /// Whether no node has this number, although one may join.
    pub fn is_vacant(&self, node: NodeRank) -> bool {
        self.nodes[node.index()].state == NodeState::Vacant
    }

    /// Whether a node is to be asked, or was asked, whether it can start.
    pub fn is_asked(&self, node: NodeRank) -> bool {
        self.nodes[node.index()].state == NodeState::Preparing
    }

    /// Whether a node has a part in the current epoch.
    pub fn is_member(&self, node: NodeRank) -> bool {
        self.workers.binary_search_by_key(&node, |worker| worker.node).is_ok()
    }

    /// Number of nodes that are missing for a start, if their number may vary.
    pub fn missing(&self) -> usize {
        let Some(elastic) = self.policy.elastic else { return 0 };
        let is_there =
            |node: &&JobNode| matches!(node.state, NodeState::Preparing | NodeState::Ready);
        let there = self.nodes.iter().filter(is_there).count();
        // Enough nodes may be there whose workers cannot share the lanes.
        let cannot_start =
            || !self.has_node_in(NodeState::Preparing) && self.choose_members(elastic).is_empty();
        match elastic.min.saturating_sub(there) {
            0 => usize::from(cannot_start()),
            missing => missing,
        }
    }

    pub(crate) fn on_node_arrived(&mut self, now: Instant, node: NodeRank) -> Vec<Effect> {
        if self.nodes[node.index()].state != NodeState::Vacant {
            return Vec::new();
        }
        if matches!(self.phase, JobPhase::Preparing) {
            self.nodes[node.index()].state = NodeState::Preparing;
            return Vec::new();
        }
        self.nodes[node.index()].state = NodeState::Standby;
        let members = self.nodes.iter().filter(|node| node.state == NodeState::Running).count();
        let is_wanted = |elastic: ElasticNodes| {
            elastic.newcomers == Newcomers::AtOnce
                && members < elastic.max
                && self.workers.len() < self.workers_of_next_epoch(elastic)
        };
        // A job of which a worker has succeeded is about to end.
        let is_ending = self.ends.iter().any(|end| end.exit.is_success());
        if self.policy.elastic.is_some_and(is_wanted) && !is_ending {
            return self.stop(now, StopReason::Arrival, SIGTERM);
        }
        Vec::new()
    }

    /// A node that was connected to is not there; its number is vacant until it is.
    pub(crate) fn on_node_absent(&mut self, now: Instant, node: NodeRank) -> Vec<Effect> {
        if self.nodes[node.index()].state == NodeState::Preparing {
            self.nodes[node.index()].state = NodeState::Vacant;
        }
        self.start_if_all_ready(now)
    }

    pub(crate) fn on_join_time_over(&mut self, now: Instant) -> Vec<Effect> {
        self.is_join_time_over = true;
        self.start_if_all_ready(now)
    }

    /// Starts once every node that is there has answered and enough are ready, and the last call for others
    /// is over.
    pub(crate) fn start_if_enough_ready(
        &mut self,
        now: Instant,
        elastic: ElasticNodes,
    ) -> Vec<Effect> {
        if !matches!(self.phase, JobPhase::Preparing) {
            return Vec::new();
        }
        let is_gone = matches!(self.nodes[0].state, NodeState::Refused | NodeState::Lost);
        if is_gone && elastic.meeting == MeetingPoint::Node0 {
            return self.refuse_start();
        }
        let ready = self.choose_members(elastic).len();
        if ready < elastic.min {
            self.last_call_until = None;
        }
        if self.has_node_in(NodeState::Preparing) {
            return Vec::new();
        }
        if ready < elastic.min {
            let may_join = self.has_node_in(NodeState::Vacant) && !self.is_join_time_over;
            return if may_join { Vec::new() } else { self.refuse_start() };
        }
        let is_called = match elastic.meeting {
            MeetingPoint::Node0 => self.previous_verdict.is_none(),
            MeetingPoint::Launcher => ready < elastic.max,
        };
        if is_called && self.has_node_in(NodeState::Vacant) {
            let until = *self.last_call_until.get_or_insert(now + elastic.last_call);
            if now < until {
                return Vec::new();
            }
        }
        self.start(now)
    }

    /// When the last call is over, unless an answer is awaited.
    pub(crate) fn last_call_deadline(&self) -> Option<Instant> {
        self.last_call_until.filter(|_| !self.has_node_in(NodeState::Preparing))
    }

    /// Nodes that are ready take part in this epoch, at most the largest number; ranks are counted through
    /// them. The others are spares.
    pub(crate) fn mark_members_running(&mut self, elastic: ElasticNodes) {
        let members = self.choose_members(elastic);
        self.workers.clear();
        for (number, node) in (0..).map(NodeRank).zip(&mut self.nodes) {
            if node.state == NodeState::Ready {
                node.state = NodeState::Standby;
            }
            if members.contains(&number) {
                node.state = NodeState::Running;
                self.workers.extend(std::iter::repeat_n(JobWorker::new(number), node.workers));
            }
        }
    }

    /// Whether a node that is lost now leaves its number vacant, and nothing else changes.
    pub(crate) fn may_become_vacant(&self, node: NodeRank) -> bool {
        let has_part = match self.nodes[node.index()].state {
            NodeState::Standby | NodeState::Refused => false,
            NodeState::Preparing | NodeState::Ready => !matches!(self.phase, JobPhase::Preparing),
            NodeState::Vacant | NodeState::Running | NodeState::Idle | NodeState::Lost => true,
        };
        !self.is_meeting_point(node) && !has_part
    }

    /// Whether this is the node that the others have joined.
    pub(crate) fn is_meeting_point(&self, node: NodeRank) -> bool {
        let meeting = self.policy.elastic.map(|elastic| elastic.meeting);
        node == NodeRank(0) && meeting != Some(MeetingPoint::Launcher)
    }

    pub(crate) fn vacate(&mut self, now: Instant, nodes: Vec<NodeRank>) -> Vec<Effect> {
        for node in &nodes {
            self.nodes[node.index()].state = NodeState::Vacant;
        }
        // A node on the launcher's machine is there as soon as it is replaced, and then finds the workers started.
        let mut effects = self.start_if_all_ready(now);
        effects.push(Effect::Replace(nodes));
        effects
    }

    /// Asks the nodes for the next epoch; those that were cut off must join again.
    pub(crate) fn ask_nodes(&mut self, cut_off: &[NodeRank]) {
        (self.last_call_until, self.is_join_time_over) = (None, false);
        if self.policy.elastic.is_none() {
            self.nodes.iter_mut().for_each(|node| node.state = NodeState::Preparing);
            return;
        }
        for node in (0..self.nodes.len() as u32).map(NodeRank) {
            let is_there =
                self.nodes[node.index()].state != NodeState::Vacant && !cut_off.contains(&node);
            let is_asked = is_there || self.is_meeting_point(node);
            self.nodes[node.index()].state =
                if is_asked { NodeState::Preparing } else { NodeState::Vacant };
        }
    }

    /// Whether a restart after this verdict needs none of those that are left: no failure caused it.
    pub(crate) fn is_free(&self, reason: StopReason, verdict: &Verdict) -> bool {
        match &verdict.cause {
            None => reason == StopReason::Arrival,
            Some(FailureCause::Node { loss: NodeLoss::Evicted, .. }) => {
                self.policy.elastic.is_some()
            }
            Some(_) => false,
        }
    }

    /// Whether a failure caused this verdict, so that a restart after it is counted.
    pub(crate) fn is_charged(&self, reason: StopReason, verdict: &Verdict) -> bool {
        match self.policy.elastic {
            Some(_) => !self.is_free(reason, verdict),
            None => reason != StopReason::Eviction,
        }
    }

    /// Whether the next epoch has other nodes, and need not wait for a cause to pass.
    pub(crate) fn changes_members(&self, reason: StopReason, verdict: &Verdict) -> bool {
        let is_node = matches!(verdict.cause, Some(FailureCause::Node { .. }));
        reason == StopReason::Arrival || self.policy.elastic.is_some() && is_node
    }

    /// Whether the number of nodes may vary, and enough are left without this one.
    pub(crate) fn has_enough_without(&self, node: NodeRank) -> bool {
        let is_left = |(number, other): &(NodeRank, &JobNode)| {
            let is_gone =
                matches!(other.state, NodeState::Vacant | NodeState::Refused | NodeState::Lost);
            *number != node && !is_gone && !self.is_evicted(*number)
        };
        let left = (0..).map(NodeRank).zip(&self.nodes).filter(is_left).count();
        self.policy.elastic.is_some_and(|elastic| elastic.min <= left)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::base::{Epoch, Rank, Status, WorkerExit, clock};
    use crate::job::testing::{
        exit, idle, node_lost, nodes_of_ranks, policy, stop_workers, verdict_of_pause,
    };
    use crate::job::{Event, OnTerm, Policy};

    const LAST_CALL: Duration = Duration::from_secs(30);

    /// A job on two to four nodes with two workers each; the only answer of node 0 has arrived.
    fn elastic(restarts_max: u32, newcomers: Newcomers) -> JobState {
        let meeting = MeetingPoint::Node0;
        let elastic = Some(ElasticNodes {
            min: 2,
            max: 4,
            meeting,
            last_call: LAST_CALL,
            newcomers,
            excludes_failing: false,
            lanes: None,
        });
        let policy = Policy { restarts_max, elastic, on_term: OnTerm::EndNode, ..policy() };
        let mut job = JobState::new(policy, (0..4).flat_map(|node| [NodeRank(node); 2]).collect());
        assert_eq!(job.step(clock::now(), Event::Ready(NodeRank(0))), []);
        job
    }

    fn join(job: &mut JobState, now: Instant, node: u32) -> Vec<Effect> {
        let mut effects = job.step(now, Event::Arrived(NodeRank(node)));
        effects.extend(job.step(now, Event::Ready(NodeRank(node))));
        effects
    }

    /// A job that runs on these nodes.
    fn running(restarts_max: u32, now: Instant, nodes: &[u32]) -> JobState {
        let mut job = elastic(restarts_max, Newcomers::AtOnce);
        for node in nodes {
            join(&mut job, now, *node);
        }
        assert_eq!(job.step(now + LAST_CALL, Event::Timer), [Effect::Start]);
        job
    }

    #[test]
    fn first_start_waits_for_the_last_call() {
        let now = clock::now();
        let mut job = elastic(0, Newcomers::AtOnce);
        assert_eq!(job.missing(), 1);
        assert_eq!(join(&mut job, now, 2), [Effect::Wake(now + LAST_CALL)]);
        assert_eq!(job.missing(), 0);
        let later = now + LAST_CALL;
        assert_eq!(job.step(later, Event::Timer), [Effect::Start]);
        let members = [0, 2].map(|node| [NodeRank(node); 2]).concat();
        assert_eq!(nodes_of_ranks(&job), members);
        assert!(job.is_member(NodeRank(2)) && !job.is_member(NodeRank(1)));
        assert_eq!(job.running(), 4);
    }

    #[test]
    fn all_nodes_start_without_a_last_call() {
        let now = clock::now();
        let mut job = elastic(0, Newcomers::AtOnce);
        for node in 1..3 {
            join(&mut job, now, node);
        }
        assert_eq!(join(&mut job, now, 3), [Effect::Start]);
    }

    #[test]
    fn node_that_arrives_in_the_last_call_is_waited_for() {
        let now = clock::now();
        let mut job = elastic(0, Newcomers::AtOnce);
        join(&mut job, now, 1);
        assert_eq!(job.step(now, Event::Arrived(NodeRank(2))), []);
        assert_eq!(job.step(now + LAST_CALL, Event::Timer), []);
        assert_eq!(job.step(now + LAST_CALL, Event::Ready(NodeRank(2))), [Effect::Start]);
    }

    #[test]
    fn too_few_nodes_end_the_job() {
        let now = clock::now();
        let mut job = elastic(0, Newcomers::AtOnce);
        assert_eq!(job.step(now, Event::JoinTimeOver), []);
        assert_eq!(job.verdict().expect("over").status, Status::Config);
    }

    #[test]
    fn job_goes_on_without_a_lost_node() {
        let now = clock::now();
        let mut job = running(1, now, &[1, 2]);
        let loss = NodeLoss::LeaseExpired;
        job.step(now, node_lost(1, loss));
        let verdict = verdict_of_pause(&stop_workers(&mut job, now, &[0, 2]), Duration::ZERO);
        assert!(matches!(verdict.cause, Some(FailureCause::Node { node: NodeRank(1), .. })));
        assert_eq!(job.step(now, Event::Timer), [Effect::BeginEpoch(vec![NodeRank(1)])]);
        assert!(job.is_vacant(NodeRank(1)) && job.is_asked(NodeRank(2)));
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert_eq!(job.step(now, Event::Ready(NodeRank(2))), [Effect::Start]);
        assert_eq!(job.epoch(), Epoch(1));
        assert_eq!(nodes_of_ranks(&job), [0, 0, 2, 2].map(NodeRank));
        assert!(!job.has_restarts_left());
    }

    #[test]
    fn job_below_the_smallest_number_waits_for_a_node() {
        let now = clock::now();
        let mut job = running(1, now, &[1]);
        job.step(now, node_lost(1, NodeLoss::LeaseExpired));
        stop_workers(&mut job, now, &[0]);
        job.step(now, Event::Timer);
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert_eq!(join(&mut job, now, 3), [Effect::Start]);
        assert_eq!(nodes_of_ranks(&job), [0, 0, 3, 3].map(NodeRank));
    }

    #[test]
    fn newcomer_restarts_the_workers_without_charge() {
        let now = clock::now();
        let mut job = running(0, now, &[1]);
        let effects = job.step(now, Event::Arrived(NodeRank(3)));
        assert_eq!(effects[..1], [Effect::ReportStopping(StopReason::Arrival)]);
        let verdict = verdict_of_pause(&stop_workers(&mut job, now, &[0, 1]), Duration::ZERO);
        assert_eq!(verdict.cause, None);
        assert_eq!(job.step(now, Event::Timer), [Effect::BeginEpoch(Vec::new())]);
        assert!(job.is_asked(NodeRank(3)));
        for node in [0, 1] {
            assert_eq!(job.step(now, Event::Ready(NodeRank(node))), []);
        }
        assert_eq!(job.step(now, Event::Ready(NodeRank(3))), [Effect::Start]);
        assert_eq!((job.epoch(), job.free_restarts()), (Epoch(1), 1));
    }

    #[test]
    fn newcomer_waits_if_a_worker_has_succeeded() {
        let now = clock::now();
        let mut job = running(0, now, &[1]);
        job.step(now, exit(0, WorkerExit::Code(0), now, &[]));
        assert_eq!(job.step(now, Event::Arrived(NodeRank(3))), []);
        for rank in 1..4 {
            job.step(now, exit(rank, WorkerExit::Code(0), now, &[]));
        }
        job.step(now, idle(0));
        job.step(now, idle(1));
        assert_eq!(job.verdict().expect("over").status, Status::Success);
    }

    #[test]
    fn newcomer_joins_at_the_next_start() {
        let now = clock::now();
        let mut job = elastic(1, Newcomers::AtNextStart);
        join(&mut job, now, 1);
        job.step(now + LAST_CALL, Event::Timer);
        assert_eq!(job.step(now, Event::Arrived(NodeRank(2))), []);
        job.step(now, exit(3, WorkerExit::Code(1), now, &[]));
        stop_workers(&mut job, now, &[0, 1]);
        job.step(now + Duration::from_secs(1), Event::Timer);
        assert!(job.is_asked(NodeRank(2)));
    }

    #[test]
    fn waiting_node_that_is_lost_changes_nothing() {
        let now = clock::now();
        let mut job = running(0, now, &[1]);
        job.step(now, exit(0, WorkerExit::Code(0), now, &[]));
        job.step(now, Event::Arrived(NodeRank(2)));
        let loss = NodeLoss::LeaseExpired;
        let effects = job.step(now, node_lost(2, loss));
        assert_eq!(effects, [Effect::Replace(vec![NodeRank(2)])]);
        assert_eq!(job.running(), 3);
    }

    #[test]
    fn node_that_leaves_is_free() {
        let now = clock::now();
        let mut job = running(0, now, &[1, 2]);
        let effects = job.step(now, Event::NodeSignal(NodeRank(2), SIGTERM));
        assert_eq!(effects[..1], [Effect::ReportStopping(StopReason::Eviction)]);
        verdict_of_pause(&stop_workers(&mut job, now, &[0, 1, 2]), Duration::ZERO);
        assert_eq!(job.step(now, Event::Timer), [Effect::BeginEpoch(vec![NodeRank(2)])]);
    }

    #[test]
    fn failure_of_a_worker_is_charged() {
        let now = clock::now();
        let mut job = running(0, now, &[1, 2]);
        job.step(now, exit(1, WorkerExit::Code(7), now, &[]));
        stop_workers(&mut job, now, &[0, 1, 2]);
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Worker(7));
        let end = verdict.cause.as_ref();
        assert!(matches!(end, Some(FailureCause::Worker(end)) if end.rank == Rank(1)));
    }

    #[test]
    fn request_of_the_user_ends_a_restart_for_a_newcomer() {
        let now = clock::now();
        let mut job = running(0, now, &[1]);
        job.step(now, Event::Arrived(NodeRank(2)));
        job.step(now, Event::Signal(2));
        stop_workers(&mut job, now, &[0, 1]);
        assert_eq!(job.verdict().expect("over").status, Status::Interrupted(2));
    }

    #[test]
    fn agent_or_shim_that_fails_before_the_start_is_replaced() {
        let now = clock::now();
        let killed = WorkerExit::Signal { signal: 9, core: false };
        for loss in [NodeLoss::LinkClosed(Some(killed)), NodeLoss::ShimExited] {
            let mut job = elastic(0, Newcomers::AtOnce);
            join(&mut job, now, 1);
            let effects = job.step(now, node_lost(1, loss));
            assert_eq!(effects, [Effect::Replace(vec![NodeRank(1)])]);
            assert_eq!((job.is_vacant(NodeRank(1)), job.missing()), (true, 1));
            assert_eq!(join(&mut job, now, 1), [Effect::Wake(now + LAST_CALL)]);
        }
    }

    #[test]
    fn node_that_always_fails_before_the_start_is_missing() {
        let now = clock::now();
        let mut job = elastic(0, Newcomers::AtOnce);
        join(&mut job, now, 1);
        let bug = WorkerExit::Code(Status::Bug.code());
        assert_eq!(job.step(now, node_lost(1, NodeLoss::LinkClosed(Some(bug)))), []);
        assert_eq!((job.is_vacant(NodeRank(1)), job.missing()), (false, 1));
        job.step(now, Event::JoinTimeOver);
        let verdict = job.verdict().expect("over");
        assert!(matches!(verdict.cause, Some(FailureCause::Node { node: NodeRank(1), .. })));
    }

    #[test]
    fn node_lost_before_the_start_is_no_later_cause() {
        let now = clock::now();
        let mut job = elastic(0, Newcomers::AtOnce);
        join(&mut job, now, 1);
        join(&mut job, now, 2);
        job.step(now, node_lost(2, NodeLoss::InvalidData("x".to_owned())));
        let later = now + LAST_CALL;
        assert_eq!(job.step(later, Event::Timer), [Effect::Start]);
        job.step(later, exit(1, WorkerExit::Code(7), later, &[]));
        stop_workers(&mut job, later, &[0, 1]);
        assert_eq!(job.verdict().expect("over").status, Status::Worker(7));
    }

    #[test]
    fn newcomer_restarts_no_job_that_has_succeeded() {
        let now = clock::now();
        let mut job = running(0, now, &[1]);
        job.step(now, Event::Arrived(NodeRank(2)));
        for rank in 0..4 {
            job.step(now, exit(rank, WorkerExit::Code(0), now, &[]));
        }
        job.step(now, idle(0));
        job.step(now, idle(1));
        assert_eq!(job.verdict().expect("over").status, Status::Success);
    }

    #[test]
    fn failure_before_a_newcomer_is_charged() {
        let now = clock::now();
        let mut job = running(0, now, &[1]);
        let later = now + Duration::from_secs(1);
        job.step(later, Event::Arrived(NodeRank(2)));
        job.step(later, exit(1, WorkerExit::Code(7), now, &[]));
        stop_workers(&mut job, later, &[0, 1]);
        assert_eq!(job.verdict().expect("over").status, Status::Worker(7));
    }

    #[test]
    fn refused_restart_for_a_newcomer_is_no_success() {
        let now = clock::now();
        let mut job = running(0, now, &[1]);
        job.step(now, Event::Arrived(NodeRank(2)));
        stop_workers(&mut job, now, &[0, 1]);
        job.step(now, Event::Timer);
        job.step(now, Event::Refused(NodeRank(0)));
        let verdict = job.verdict().expect("over");
        assert_eq!((verdict.status, &verdict.cause), (Status::Config, &None));
    }

    #[test]
    fn node_that_confirms_no_stop_for_a_newcomer_fails_no_worker() {
        let now = clock::now();
        let mut job = running(5, now, &[1]);
        job.step(now, Event::Arrived(NodeRank(2)));
        let term = WorkerExit::Signal { signal: SIGTERM, core: false };
        for rank in 0..4 {
            job.step(now, exit(rank, term, now, &[SIGTERM]));
        }
        job.step(now, idle(0));
        job.step(now + Duration::from_secs(10), Event::Timer);
        job.step(now + Duration::from_secs(100), Event::Timer);
        let verdict = job.verdict().expect("over");
        assert_eq!((verdict.status, &verdict.cause), (Status::LeaseLost, &None));
        assert_eq!(verdict.unconfirmed, [NodeRank(1)]);
    }

    #[test]
    fn node_may_leave_while_reports_are_collected() {
        let now = clock::now();
        let mut job = running(1, now, &[1, 2]);
        job.policy.has_evidence = true;
        job.step(now, exit(1, WorkerExit::Code(7), now, &[]));
        stop_workers(&mut job, now, &[0, 1, 2]);
        let (later, second) = (now + Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(job.step(later, Event::NodeSignal(NodeRank(2), SIGTERM)).len(), 1, "a timer");
        let effects = job.step(later, Event::Evidence(BTreeMap::new()));
        assert_eq!(verdict_of_pause(&effects, second).status, Status::Worker(7));
        let effects = job.step(later + second, Event::Timer);
        assert_eq!(effects, [Effect::BeginEpoch(vec![NodeRank(2)])]);
    }

    #[test]
    fn node_whose_workers_have_succeeded_may_leave() {
        let now = clock::now();
        let mut job = running(0, now, &[1, 2]);
        for rank in [4, 5, 0, 1, 2, 3] {
            job.step(now, exit(rank, WorkerExit::Code(0), now, &[]));
            if rank == 5 {
                job.step(now, idle(2));
                assert_eq!(job.step(now, Event::NodeSignal(NodeRank(2), SIGTERM)), []);
            }
        }
        job.step(now, idle(0));
        job.step(now, idle(1));
        assert_eq!(job.verdict().expect("over").status, Status::Success);
    }
}

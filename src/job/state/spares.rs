//! Which of the nodes that are ready take part in an epoch, and which are spares.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::base::NodeRank;
use crate::base::order;
use crate::job::cause::failure::{FailureCause, Verdict};
use crate::job::event::{ElasticNodes, FAILURES_MAX};
use crate::job::state::job_state::{JobState, NodeState};
use crate::job::state::member_selection::{Allowed, select};

impl JobState {
    /// Number of nodes that stand ready and have no part in this epoch.
    pub fn spares(&self) -> usize {
        self.nodes.iter().filter(|node| node.state == NodeState::Standby).count()
    }

    /// Nodes that are ready, at most the largest number of them whose workers can share the lanes: those that
    /// failed least often, of these those with the most workers, in the order of their numbers. Empty if fewer than the smallest number can.
    pub(crate) fn choose_members(&self, elastic: ElasticNodes) -> BTreeSet<NodeRank> {
        self.choose_among(elastic, |state| state == NodeState::Ready)
    }

    /// Number of workers that an epoch would have if all nodes that have joined were ready.
    pub(crate) fn workers_of_next_epoch(&self, elastic: ElasticNodes) -> usize {
        let has_joined = |state| match state {
            NodeState::Standby | NodeState::Running | NodeState::Idle => true,
            NodeState::Vacant
            | NodeState::Preparing
            | NodeState::Ready
            | NodeState::Refused
            | NodeState::Lost => false,
        };
        let members = self.choose_among(elastic, has_joined);
        members.iter().map(|node| self.nodes[node.index()].workers).sum()
    }

    fn choose_among(
        &self,
        elastic: ElasticNodes,
        is_there: impl Fn(NodeState) -> bool,
    ) -> BTreeSet<NodeRank> {
        let faults = |node: &NodeRank| self.nodes[node.index()].faults;
        let nodes = (0..).map(NodeRank).zip(&self.nodes);
        let there = nodes.filter(|(_, node)| is_there(node.state));
        let mut there: Vec<NodeRank> = there.map(|(node, _)| node).collect();
        let size = |node: &NodeRank| Reverse(self.nodes[node.index()].workers);
        order::sort_by_key(&mut there, |node| {
            (!self.is_meeting_point(*node), faults(node), size(node), *node)
        });
        let is_failing =
            |node: &&NodeRank| FAILURES_MAX <= faults(node) && !self.is_meeting_point(**node);
        let failing = there.iter().filter(is_failing).count();
        let good = if elastic.excludes_failing { there.len() - failing } else { there.len() };
        let sizes: Vec<usize> = there.iter().map(|node| self.nodes[node.index()].workers).collect();
        let ElasticNodes { min, max, lanes, .. } = elastic;
        let keeps_first = there.first().is_some_and(|first| self.is_meeting_point(*first));
        let allowed = Allowed { min, max, lanes, keeps_first };
        let of_good = select(&sizes[..good], allowed);
        // Too few: with as few as possible of those that fail.
        let with_failing =
            || (good + 1..=there.len()).find_map(|count| select(&sizes[..count], allowed));
        let selected = of_good.or_else(with_failing).unwrap_or_default();
        selected.into_iter().map(|index| there[index]).collect()
    }

    /// Nodes that failed so often that they have no part in this epoch.
    pub fn excluded(&self) -> Vec<NodeRank> {
        let excludes = self.policy.elastic.is_some_and(|elastic| elastic.excludes_failing);
        let excluded = (0..).map(NodeRank).zip(&self.nodes).filter(|(_, node)| {
            excludes && node.state == NodeState::Standby && FAILURES_MAX <= node.faults
        });
        excluded.map(|(node, _)| node).collect()
    }

    /// Notes the node of the worker that was the cause of a failure.
    pub(crate) fn note_fault(&mut self, verdict: &Verdict) {
        if let Some(FailureCause::Worker(end)) = &verdict.cause
            && let Some(worker) = self.workers.get(end.rank.index())
        {
            self.nodes[worker.node.index()].faults += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::{Status, WorkerExit, clock};
    use crate::job::event::{Effect, Event, MeetingPoint, Newcomers, StopReason};
    use crate::job::testing::{
        exit, idle, node_lost, nodes_of_ranks, policy, stop_workers, verdict_of_pause,
    };
    use crate::job::{NodeLoss, OnTerm, Policy};

    const LAST_CALL: Duration = Duration::from_secs(30);

    /// A job on two to three nodes to which the launcher connects, one of them more than run at once.
    fn with_spares(min: usize, max: usize) -> JobState {
        let (meeting, newcomers) = (MeetingPoint::Launcher, Newcomers::AtOnce);
        let excludes_failing = true;
        let elastic = ElasticNodes {
            min,
            max,
            meeting,
            last_call: LAST_CALL,
            newcomers,
            excludes_failing,
            lanes: None,
        };
        let elastic = Some(elastic);
        let policy = Policy { restarts_max: 5, elastic, ..policy() };
        JobState::new(policy, (0..3).flat_map(|node| [NodeRank(node); 2]).collect())
    }

    /// The nodes answer that they can start. Returns the effects of the last answer.
    fn answer(job: &mut JobState, now: Instant, nodes: &[u32]) -> Vec<Effect> {
        let ready = |node: &u32| job.step(now, Event::Ready(NodeRank(*node)));
        nodes.iter().map(ready).last().unwrap_or_default()
    }

    /// A node is lost, the workers stop, and the next epoch begins.
    fn lose(job: &mut JobState, now: Instant, lost: u32, others: &[u32]) {
        let loss = NodeLoss::LeaseExpired;
        job.step(now, node_lost(lost, loss));
        verdict_of_pause(&stop_workers(job, now, others), Duration::ZERO);
        assert_eq!(job.step(now, Event::Timer), [Effect::BeginEpoch(vec![NodeRank(lost)])]);
    }

    #[test]
    fn absent_node_is_called_once_more_and_left_out() {
        let now = clock::now();
        let mut job = with_spares(2, 3);
        answer(&mut job, now, &[1, 2]);
        assert_eq!(job.step(now, Event::Absent(NodeRank(0))), [Effect::Wake(now + LAST_CALL)]);
        assert_eq!(job.step(now + LAST_CALL, Event::Timer), [Effect::Start]);
        assert_eq!(nodes_of_ranks(&job), [1, 1, 2, 2].map(NodeRank), "node 0 is like the others");
        let effects = job.step(now, Event::Arrived(NodeRank(0)));
        assert_eq!(effects[..1], [Effect::ReportStopping(StopReason::Arrival)]);
    }

    #[test]
    fn spare_takes_the_place_of_a_lost_node() {
        let now = clock::now();
        let mut job = with_spares(2, 2);
        assert_eq!(answer(&mut job, now, &[2, 0, 1]), [Effect::Start]);
        assert_eq!(
            (nodes_of_ranks(&job).as_slice(), job.spares()),
            (&[0, 0, 1, 1].map(NodeRank)[..], 1)
        );
        lose(&mut job, now, 0, &[1]);
        assert_eq!(answer(&mut job, now, &[1, 2]), [Effect::Start], "no other one is needed");
        assert_eq!(nodes_of_ranks(&job), [1, 1, 2, 2].map(NodeRank));
        assert_eq!(job.step(now, Event::Arrived(NodeRank(0))), [], "it is a spare now");
        lose(&mut job, now, 2, &[1]);
        assert_eq!(answer(&mut job, now, &[0, 1]), [Effect::Start]);
        assert_eq!(nodes_of_ranks(&job), [0, 0, 1, 1].map(NodeRank));
    }

    #[test]
    fn node_that_was_lost_often_is_a_spare() {
        let now = clock::now();
        let mut job = with_spares(2, 2);
        answer(&mut job, now, &[0, 1, 2]);
        lose(&mut job, now, 0, &[1]);
        job.step(now, Event::Arrived(NodeRank(0)));
        assert_eq!(answer(&mut job, now, &[0, 1, 2]), [Effect::Start]);
        assert_eq!(nodes_of_ranks(&job), [1, 1, 2, 2].map(NodeRank));
    }

    #[test]
    fn number_of_workers_divides_the_lanes() {
        let now = clock::now();
        let mut job = with_spares(1, 3);
        job.policy.elastic.as_mut().expect("elastic").lanes = Some(12);
        answer(&mut job, now, &[0, 1, 2]);
        assert_eq!(job.running(), 6);
        job.policy.elastic.as_mut().expect("elastic").lanes = Some(8);
        lose(&mut job, now, 0, &[1, 2]);
        job.step(now, Event::Arrived(NodeRank(0)));
        assert_eq!(answer(&mut job, now, &[0, 1, 2]), [Effect::Start]);
        assert_eq!((job.running(), job.spares()), (4, 1), "6 workers cannot share 8 lanes");
    }

    #[test]
    fn node_whose_workers_fail_twice_is_left_out() {
        let mut now = clock::now();
        let mut job = with_spares(2, 3);
        answer(&mut job, now, &[0, 1, 2]);
        for attempt in 0..2 {
            assert_eq!((job.running(), job.excluded()), (6, Vec::new()), "attempt {attempt}");
            job.step(now, exit(2, WorkerExit::Code(1), now, &[]));
            stop_workers(&mut job, now, &[0, 1, 2]);
            now += Duration::from_secs(9);
            job.step(now, Event::Timer);
            answer(&mut job, now, &[0, 1, 2]);
        }
        assert_eq!(nodes_of_ranks(&job), [0, 0, 2, 2].map(NodeRank));
        assert_eq!(job.excluded(), [NodeRank(1)]);
    }

    #[test]
    fn spare_that_is_lost_changes_nothing() {
        let now = clock::now();
        let mut job = with_spares(2, 2);
        answer(&mut job, now, &[0, 1, 2]);
        let loss = NodeLoss::LeaseExpired;
        let effects = job.step(now, node_lost(2, loss));
        assert_eq!(effects, [Effect::Replace(vec![NodeRank(2)])]);
        assert_eq!((job.running(), job.spares()), (4, 0));
    }

    #[test]
    fn too_few_nodes_within_reach_end_the_job() {
        let now = clock::now();
        let mut job = with_spares(2, 3);
        job.step(now, Event::Absent(NodeRank(1)));
        answer(&mut job, now, &[0]);
        assert_eq!(job.step(now, Event::Refused(NodeRank(2))), []);
        assert_eq!(job.missing(), 1);
        job.step(now, Event::JoinTimeOver);
        assert_eq!(job.verdict().expect("over").status, Status::Config);
    }

    #[test]
    fn spare_that_ends_stops_no_worker() {
        let now = clock::now();
        let killed = WorkerExit::Signal { signal: 9, core: false };
        let replaced = [Effect::Replace(vec![NodeRank(2)])];
        let running = || {
            let mut job = with_spares(2, 2);
            job.policy.on_term = OnTerm::EndNode;
            answer(&mut job, now, &[0, 1, 2]);
            job
        };
        for loss in [NodeLoss::LinkClosed(Some(killed)), NodeLoss::ShimExited] {
            let mut job = running();
            assert_eq!(job.step(now, node_lost(2, loss)), replaced);
            assert_eq!(job.step(now, idle(2)), []);
            assert!(job.is_vacant(NodeRank(2)) && job.running() == 4);
        }
        let mut job = running();
        assert_eq!(job.step(now, node_lost(2, NodeLoss::InvalidData("x".to_owned()))), []);
        assert_eq!(job.running(), 4);
        let mut job = running();
        assert_eq!(job.step(now, Event::NodeSignal(NodeRank(2), 15)), replaced);
        assert_eq!(job.running(), 4);
    }

    #[test]
    fn node_that_refused_and_is_lost_stops_no_worker() {
        let now = clock::now();
        let mut job = with_spares(2, 3);
        answer(&mut job, now, &[0, 1]);
        assert_eq!(job.step(now, Event::Refused(NodeRank(2))), [Effect::Start]);
        let effects = job.step(now, node_lost(2, NodeLoss::LeaseExpired));
        assert_eq!(effects, [Effect::Replace(vec![NodeRank(2)])]);
        assert_eq!(job.running(), 4);
    }

    #[test]
    fn newcomer_that_brings_no_worker_waits() {
        let now = clock::now();
        let mut job = with_spares(2, 3);
        job.policy.elastic.as_mut().expect("elastic").lanes = Some(4);
        job.step(now, Event::Absent(NodeRank(2)));
        answer(&mut job, now, &[0, 1]);
        assert_eq!(job.step(now + LAST_CALL, Event::Timer), [Effect::Start]);
        assert_eq!(job.step(now, Event::Arrived(NodeRank(2))), [], "6 workers share no 4 lanes");
        job.policy.elastic.as_mut().expect("elastic").lanes = Some(12);
        job.step(now, node_lost(2, NodeLoss::LeaseExpired));
        let effects = job.step(now, Event::Arrived(NodeRank(2)));
        assert_eq!(effects[..1], [Effect::ReportStopping(StopReason::Arrival)]);
    }

    #[test]
    fn nodes_with_most_workers_have_a_part() {
        let now = clock::now();
        let mut job = with_spares(1, 1);
        job.nodes[1].workers = 3;
        answer(&mut job, now, &[0, 1, 2]);
        assert_eq!(nodes_of_ranks(&job), [1, 1, 1].map(NodeRank));
    }

    #[test]
    fn lanes_that_too_few_nodes_can_share_end_the_start() {
        let now = clock::now();
        let mut job = with_spares(2, 2);
        job.policy.elastic.as_mut().expect("elastic").lanes = Some(6);
        answer(&mut job, now, &[0]);
        assert_eq!((job.missing(), job.spares()), (0, 0), "two answers are awaited");
        answer(&mut job, now, &[1]);
        answer(&mut job, now, &[2]);
        assert_eq!(
            job.verdict().expect("2 of 3 nodes cannot share 6 lanes").status,
            Status::Config
        );
    }

    #[test]
    fn failing_node_has_a_part_if_the_others_cannot_share_the_lanes() {
        let now = clock::now();
        let mut job = with_spares(2, 3);
        job.policy.elastic.as_mut().expect("elastic").lanes = Some(6);
        job.nodes[1].faults = FAILURES_MAX;
        assert_eq!(answer(&mut job, now, &[0, 1, 2]), [Effect::Start]);
        assert_eq!(job.running(), 6);
    }
}

//! Start of an epoch, from the question whether nodes can start to running workers: all or none.

use std::time::Instant;

use crate::base::{NodeRank, Rank, Status};
use crate::job::cause::failure::{FailureCause, StartFailure, Verdict};
use crate::job::cause::root_cause;
use crate::job::event::{Effect, OnFailure};
use crate::job::state::job_state::{JobNode, JobPhase, JobState, JobWorker, NodeState};

impl JobState {
    pub(crate) fn on_node_answer(
        &mut self,
        now: Instant,
        node: NodeRank,
        answer: NodeState,
    ) -> Vec<Effect> {
        // The answer may have been sent before the node was lost.
        if self.nodes[node.index()].state == NodeState::Lost {
            return Vec::new();
        }
        let state = self.nodes[node.index()].state;
        let is_awaited = matches!(state, NodeState::Preparing | NodeState::Vacant);
        assert!(is_awaited, "a node answers once");
        self.nodes[node.index()].state = answer;
        self.start_if_all_ready(now)
    }

    /// Starts all workers or none: if one node refuses, no worker starts anywhere. Only workers
    /// that run on whatever happens to the others start where they can.
    pub(crate) fn start_if_all_ready(&mut self, now: Instant) -> Vec<Effect> {
        if let Some(elastic) = self.policy.elastic {
            return self.start_if_enough_ready(now, elastic);
        }
        let preparing = matches!(self.phase, JobPhase::Preparing);
        if !preparing || self.has_node_in(NodeState::Preparing) {
            return Vec::new();
        }
        let can_start = match self.policy.failure {
            OnFailure::StopAll => self.nodes.iter().all(|node| node.state == NodeState::Ready),
            OnFailure::LetRun => self.has_node_in(NodeState::Ready),
        };
        if can_start { self.start(now) } else { self.refuse_start() }
    }

    /// Starts the workers of the nodes that are ready.
    pub(crate) fn start(&mut self, now: Instant) -> Vec<Effect> {
        if self.epochs.must_skip() {
            return vec![self.skip_used_epochs()];
        }
        match self.policy.elastic {
            Some(elastic) => {
                self.mark_members_running(elastic);
                // Nodes that were lost before have no part in this epoch, and are no cause of its end.
                self.failures.nodes.clear();
            }
            None => self.mark_ready_nodes_running(),
        }
        self.epochs.on_started();
        self.phase = JobPhase::Running;
        self.failures.workers = self.workers.len();
        self.workers_started_at = Some(now);
        vec![Effect::Start]
    }

    /// Ends the job because too few nodes can start.
    pub(crate) fn refuse_start(&mut self) -> Vec<Effect> {
        if let Some(before) = self.previous_verdict.take_if(|before| before.cause.is_some()) {
            // The failure that made the restart necessary is the cause; the launcher keeps the
            // reasons why the restart was refused.
            self.phase = JobPhase::Done(before);
            return Vec::new();
        }
        let status =
            if self.failures.nodes.is_empty() { Status::Config } else { Status::LeaseLost };
        let cause = root_cause::find(&self.ends, &self.failures);
        let status = cause.as_ref().map_or(status, FailureCause::status);
        self.phase = JobPhase::Done(Verdict {
            status,
            also_lost: self.also_lost(cause.as_ref()),
            cause,
            also_failed: 0,
            stopped: 0,
            unconfirmed: Vec::new(),
            reports: Box::default(),
        });
        Vec::new()
    }

    /// Skips the epochs that a previous launcher began, so that what is left of them cannot be
    /// taken for a part of this one.
    fn skip_used_epochs(&mut self) -> Effect {
        self.epochs.skip_used();
        // A lost node has no link over which it could become ready; one that has refused would refuse again.
        let is_there = |node: &&mut JobNode| match node.state {
            NodeState::Lost | NodeState::Vacant | NodeState::Refused => false,
            NodeState::Standby
            | NodeState::Preparing
            | NodeState::Ready
            | NodeState::Running
            | NodeState::Idle => true,
        };
        for node in self.nodes.iter_mut().filter(is_there) {
            node.state = NodeState::Preparing;
        }
        Effect::SkipToEpoch(self.epoch())
    }

    /// Excludes nodes that are not ready: they have no part in the job, and their workers count as
    /// ended.
    fn mark_ready_nodes_running(&mut self) {
        self.workers.clear();
        for (number, node) in (0..).map(NodeRank).zip(&mut self.nodes) {
            let is_ready = node.state == NodeState::Ready;
            let worker = JobWorker { node: number, has_ended: !is_ready };
            self.workers.extend(std::iter::repeat_n(worker, node.workers));
            node.state = if is_ready { NodeState::Running } else { NodeState::Lost };
        }
    }

    pub(crate) fn on_worker_not_started(
        &mut self,
        now: Instant,
        rank: Rank,
        failure: StartFailure,
    ) -> Vec<Effect> {
        if self.workers[rank.index()].has_ended {
            return Vec::new();
        }
        self.failures.unstarted.push((now, rank, failure));
        self.on_failure(now)
    }
}

#[cfg(test)]
mod tests {
    use crate::base::{Epoch, NodeRank, Status, WorkerExit, clock};
    use crate::job::state::job_state::NodeState;
    use crate::job::testing::{exit, idle, nodes_of_ranks, preparing};
    use crate::job::{Effect, Event, OnFailure};

    #[test]
    fn ranks_follow_the_workers_that_nodes_start_themselves() {
        let mut job = preparing(2);
        let now = clock::now();
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert_eq!(job.step(now, Event::OwnWorkers { node: NodeRank(1), workers: 3 }), []);
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [Effect::Start]);
        assert_eq!(nodes_of_ranks(&job).last_chunk(), Some(&[NodeRank(1); 3]));
        let others = nodes_of_ranks(&job).len() - 3;
        assert!(nodes_of_ranks(&job)[..others].iter().all(|node| *node == NodeRank(0)));
    }

    #[test]
    fn nothing_starts_unless_every_node_is_ready() {
        let mut job = preparing(2);
        let now = clock::now();
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert_eq!(job.step(now, Event::Refused(NodeRank(1))), []);
        assert_eq!(job.verdict().expect("over").status, Status::Config);
    }

    #[test]
    fn refused_node_is_not_unconfirmed_after_a_signal() {
        let mut job = preparing(3);
        let now = clock::now();
        job.step(now, Event::Ready(NodeRank(0)));
        job.step(now, Event::Refused(NodeRank(2)));
        job.step(now, Event::Signal(2));
        let verdict = job.verdict().expect("over");
        assert_eq!((verdict.status, &verdict.unconfirmed), (Status::Interrupted(2), &Vec::new()));
    }

    #[test]
    fn replacement_launcher_skips_used_epochs() {
        let now = clock::now();
        let mut job = preparing(2);
        assert_eq!(job.step(now, Event::EarlierEpochs { epoch: Epoch(3), free_restarts: 0 }), []);
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), []);
        assert_eq!(job.step(now, Event::EarlierEpochs { epoch: Epoch(2), free_restarts: 0 }), []);
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), [Effect::SkipToEpoch(Epoch(3))]);
        assert_eq!(job.epoch(), Epoch(3));
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [Effect::Start]);
    }

    #[test]
    fn replacement_launcher_does_not_wait_for_a_lost_node() {
        let now = clock::now();
        let mut job = preparing(2);
        job.policy.failure = OnFailure::LetRun;
        job.step(now, Event::EarlierEpochs { epoch: Epoch(3), free_restarts: 0 });
        job.nodes[1].state = NodeState::Lost;
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), [Effect::SkipToEpoch(Epoch(3))]);
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), [Effect::Start]);
    }

    #[test]
    fn independent_workers_start_on_ready_nodes() {
        let now = clock::now();
        let mut job = preparing(3);
        job.policy.failure = OnFailure::LetRun;
        job.step(now, Event::Refused(NodeRank(0)));
        job.step(now, Event::Ready(NodeRank(1)));
        assert_eq!(job.step(now, Event::Ready(NodeRank(2))), [Effect::Start]);
        assert_eq!(job.running(), 4);
        for rank in 2..6 {
            job.step(now, exit(rank, WorkerExit::Code(0), now, &[]));
        }
        job.step(now, idle(1));
        job.step(now, idle(2));
        let verdict = job.verdict().expect("over");
        assert_eq!((verdict.status, &verdict.cause), (Status::Success, &None));
    }

    #[test]
    fn independent_workers_need_one_ready_node() {
        let now = clock::now();
        let mut job = preparing(1);
        job.policy.failure = OnFailure::LetRun;
        assert_eq!(job.step(now, Event::Refused(NodeRank(0))), []);
        assert_eq!(job.verdict().expect("over").status, Status::Config);
    }
}

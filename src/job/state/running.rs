//! Exits of workers while a job runs; the first failure stops the others.

use std::time::Instant;

use crate::base::{NodeRank, Rank};
use crate::job::cause::failure::WorkerEnd;
use crate::job::event::{Effect, OnFailure, StopReason};
use crate::job::signal_numbers::SIGTERM;
use crate::job::state::job_state::{JobState, NodeState};

impl JobState {
    pub(crate) fn on_worker_exited(&mut self, now: Instant, end: WorkerEnd) -> Vec<Effect> {
        // The exit of a worker of a lost node may have been sent before the loss.
        if self.workers[end.rank.index()].has_ended {
            return Vec::new();
        }
        let (rank, failed) = (end.rank, !end.exit.is_success());
        self.workers[rank.index()].has_ended = true;
        self.ends.push(end);
        if !failed {
            return Vec::new();
        }
        let mut effects = self.on_failure(now);
        if !effects.is_empty() {
            effects.insert(0, Effect::ShowOnly(rank));
        }
        effects
    }

    pub(crate) fn on_failure(&mut self, now: Instant) -> Vec<Effect> {
        match self.policy.failure {
            OnFailure::StopAll => self.stop(now, StopReason::Failure, SIGTERM),
            OnFailure::LetRun => Vec::new(),
        }
    }

    pub(crate) fn on_peer_lost(&mut self, rank: Rank, peer: Rank) -> Vec<Effect> {
        self.failures.peer_losses.push((rank, peer));
        Vec::new()
    }

    /// Handles a node without remaining processes. Workers whose exit it did not report are lost:
    /// success needs the exit of every worker.
    pub(crate) fn on_node_idle(
        &mut self,
        now: Instant,
        node: NodeRank,
        is_clean: bool,
    ) -> Vec<Effect> {
        self.is_dirty |= !is_clean;
        if !matches!(self.nodes[node.index()].state, NodeState::Lost | NodeState::Vacant) {
            self.nodes[node.index()].state = NodeState::Idle;
            self.mark_workers_lost(node, now);
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Status, WorkerExit, clock};
    use crate::job::testing::{GRACE, exit, idle, running};

    #[test]
    fn success_needs_every_worker_and_every_node() {
        let now = clock::now();
        let mut job = running(1, now);
        assert_eq!(job.step(now, exit(0, WorkerExit::Code(0), now, &[])), []);
        assert_eq!(job.step(now, exit(1, WorkerExit::Code(0), now, &[])), []);
        assert!(job.verdict().is_none(), "the node may still have leftovers");
        job.step(now, idle(0));
        assert_eq!(job.verdict().expect("over").status, Status::Success);
    }

    #[test]
    fn first_failure_stops_all_and_sets_exit_status() {
        let now = clock::now();
        let mut job = running(2, now);
        let effects = job.step(now, exit(3, WorkerExit::Code(7), now, &[]));
        assert_eq!(
            effects,
            [
                Effect::ShowOnly(Rank(3)),
                Effect::ReportStopping(StopReason::Failure),
                Effect::Signal(SIGTERM),
                Effect::Wake(now + GRACE)
            ]
        );
        let term = WorkerExit::Signal { signal: SIGTERM, core: false };
        for rank in 0..3 {
            job.step(now, exit(rank, term, now, &[SIGTERM]));
        }
        job.step(now, idle(0));
        job.step(now, idle(1));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Worker(7));
        assert_eq!(verdict.stopped, 3);
    }

    #[test]
    fn worker_without_reported_exit_is_no_success() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, exit(0, WorkerExit::Code(0), now, &[]));
        job.step(now, idle(0));
        assert_eq!(job.verdict().expect("over").status, Status::LeaseLost);
    }
}

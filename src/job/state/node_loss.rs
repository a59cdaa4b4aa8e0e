//! Loss of nodes, and of the workers on them.

use std::time::Instant;

use crate::base::{NodeRank, Rank, WorkerExit};
use crate::job::cause::failure::{LostNode, NodeLoss, WorkerEnd};
use crate::job::event::{Effect, OnEarlyLoss, OnFailure, SilentNode};
use crate::job::state::job_state::{JobPhase, JobState, NodeState};

impl JobState {
    pub(crate) fn on_node_lost(&mut self, now: Instant, lost: LostNode) -> Vec<Effect> {
        let is_replaceable = match self.policy.elastic {
            Some(_) => !lost.loss.would_recur(),
            None => lost.loss.is_whole_node(),
        };
        if is_replaceable && self.may_be_replaced(lost.node) {
            return self.await_replacements(now, vec![lost.node]);
        }
        if self.record_loss(lost) { self.start_or_fail(now) } else { Vec::new() }
    }

    /// Whether a lost node may be replaced before the start. False once a node has refused, because
    /// then the job will not start with any replacement.
    pub(crate) fn may_be_replaced(&self, node: NodeRank) -> bool {
        if self.policy.elastic.is_some() {
            return self.may_become_vacant(node);
        }
        self.policy.early_loss == OnEarlyLoss::AwaitReplacement
            && node != NodeRank(0)
            && matches!(self.phase, JobPhase::Preparing)
            && matches!(self.nodes[node.index()].state, NodeState::Preparing | NodeState::Ready)
            && !self.has_node_in(NodeState::Refused)
    }

    pub(crate) fn await_replacements(&mut self, now: Instant, nodes: Vec<NodeRank>) -> Vec<Effect> {
        if self.policy.elastic.is_some() {
            return self.vacate(now, nodes);
        }
        for node in &nodes {
            self.nodes[node.index()].state = NodeState::Preparing;
        }
        vec![Effect::Replace(nodes)]
    }

    /// Handles nodes that lost their leases together. All of them are noted before any worker is
    /// stopped, so that no lost node is asked to stop workers.
    pub(crate) fn on_leases_expired(&mut self, now: Instant, nodes: &[SilentNode]) -> Vec<Effect> {
        let (awaited, lost): (Vec<SilentNode>, Vec<SilentNode>) =
            nodes.iter().partition(|silent| self.may_be_replaced(silent.node));
        // Without vacant numbers, the loss of a node that cannot be replaced ends the job: no replacement of
        // another node is awaited.
        let is_over = self.policy.elastic.is_none()
            && self.policy.failure == OnFailure::StopAll
            && !lost.is_empty();
        if is_over || awaited.is_empty() {
            return self.record_losses(now, nodes);
        }
        let awaited = awaited.iter().map(|silent| silent.node).collect();
        let mut effects = self.await_replacements(now, awaited);
        effects.extend(self.record_losses(now, &lost));
        effects
    }

    fn record_losses(&mut self, now: Instant, silent: &[SilentNode]) -> Vec<Effect> {
        let mut is_news = false;
        for &SilentNode { node, since } in silent {
            let loss = NodeLoss::LeaseExpired;
            is_news |= self.record_loss(LostNode { node, loss, at: now, since });
        }
        if is_news { self.start_or_fail(now) } else { Vec::new() }
    }

    /// Notes the loss of a node; false if the node was already lost or idle.
    fn record_loss(&mut self, lost: LostNode) -> bool {
        let node = lost.node;
        match self.nodes[node.index()].state {
            NodeState::Lost | NodeState::Vacant => return false,
            NodeState::Idle | NodeState::Standby => {
                // The next epoch needs a new link.
                self.nodes[node.index()].state = NodeState::Lost;
                return false;
            }
            NodeState::Refused if self.policy.elastic.is_some() => {
                self.nodes[node.index()].state = NodeState::Lost;
                return false;
            }
            NodeState::Preparing | NodeState::Ready | NodeState::Refused | NodeState::Running => {}
        }
        let was_running = self.nodes[node.index()].state == NodeState::Running;
        self.nodes[node.index()].faults += u32::from(was_running);
        // The exit of a shim is reported by an agent that still runs. It reports `Idle` itself,
        // unless the job was still preparing.
        if !lost.loss.is_shim_failure() || matches!(self.phase, JobPhase::Preparing) {
            self.nodes[node.index()].state = NodeState::Lost;
            self.mark_workers_lost(node, lost.at);
        }
        self.failures.nodes.push(lost);
        true
    }

    fn start_or_fail(&mut self, now: Instant) -> Vec<Effect> {
        match self.phase {
            JobPhase::Preparing => self.start_if_all_ready(now),
            _ => self.on_failure(now),
        }
    }

    pub(crate) fn mark_workers_lost(&mut self, node: NodeRank, at: Instant) {
        // Ranks are numbered through the nodes, of which there may be thousands.
        let first = self.workers.partition_point(|worker| worker.node < node);
        let end = self.workers.partition_point(|worker| worker.node <= node);
        for index in first..end {
            let rank = Rank(index as u32);
            if !self.workers[index].has_ended && !self.has_failed_to_start(rank) {
                self.workers[index].has_ended = true;
                let (exit, sent) = (WorkerExit::Lost, Vec::new());
                self.ends.push(WorkerEnd { rank, exit, at, signals_sent: sent });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Status, clock};
    use crate::job::cause::failure::StartFailure;
    use crate::job::cause::failure::StartStep;
    use crate::job::signal_numbers::SIGTERM;
    use crate::job::testing::{exit, idle, leases_expired, node_lost, preparing, running};
    use crate::job::{Event, FailureCause};

    #[test]
    fn lost_node_stops_other_nodes_and_is_the_cause() {
        let now = clock::now();
        let mut job = running(2, now);
        let loss = NodeLoss::LinkClosed(None);
        job.step(now, node_lost(1, loss.clone()));
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        job.step(now, exit(1, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, idle(0));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.cause, Some(FailureCause::Node { node: NodeRank(1), loss }));
        assert_eq!(verdict.status, Status::LeaseLost);
    }

    #[test]
    fn shim_lost_before_the_start_prevents_the_start() {
        let mut job = preparing(2);
        let now = clock::now();
        let loss = NodeLoss::ShimExited;
        job.step(now, Event::Ready(NodeRank(0)));
        job.step(now, node_lost(1, loss.clone()));
        job.step(now, idle(1));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.cause, Some(FailureCause::Node { node: NodeRank(1), loss }));
        job = preparing(2);
        job.step(now, node_lost(1, NodeLoss::ShimExited));
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [], "the agent had sent it before");
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert!(job.verdict().is_some());
    }

    #[test]
    fn node_0_lost_together_with_a_replaceable_node_is_lost() {
        let now = clock::now();
        let awaiting = |failure| {
            let mut job = preparing(3);
            (job.policy.early_loss, job.policy.failure) = (OnEarlyLoss::AwaitReplacement, failure);
            job.step(now, Event::Ready(NodeRank(2)));
            job
        };
        let mut job = awaiting(OnFailure::StopAll);
        assert_eq!(job.step(now, leases_expired(&[0, 1], now)), [], "no replacement is awaited");
        let verdict = job.verdict().expect("over");
        assert!(matches!(verdict.cause, Some(FailureCause::Node { node: NodeRank(0), .. })));
        let mut job = awaiting(OnFailure::LetRun);
        let effects = job.step(now, leases_expired(&[0, 1], now));
        assert_eq!(effects, [Effect::Replace(vec![NodeRank(1)])]);
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [Effect::Start]);
        for rank in 2..6 {
            job.step(now, exit(rank, WorkerExit::Code(0), now, &[]));
        }
        job.step(now, idle(1));
        job.step(now, idle(2));
        assert_eq!(job.verdict().expect("over").status, Status::LeaseLost);
    }

    #[test]
    fn node_lost_before_the_start_may_be_replaced() {
        let now = clock::now();
        let awaiting = || {
            let mut job = preparing(3);
            job.policy.early_loss = OnEarlyLoss::AwaitReplacement;
            job.step(now, Event::Ready(NodeRank(0)));
            job.step(now, Event::Ready(NodeRank(1)));
            job
        };
        let gone = |loss| node_lost(1, loss);
        let mut job = awaiting();
        let effects = job.step(now, gone(NodeLoss::LinkClosed(None)));
        assert_eq!(effects, [Effect::Replace(vec![NodeRank(1)])]);
        assert_eq!(job.step(now, Event::Ready(NodeRank(2))), [], "the place is free");
        let effects = job.step(now, leases_expired(&[1, 2], now));
        assert_eq!(effects, [Effect::Replace(vec![NodeRank(1), NodeRank(2)])]);
        job.step(now, Event::Ready(NodeRank(2)));
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [Effect::Start]);
        assert_eq!(job.step(now, Event::Timer), [], "no node was lost");
        // No replacement joined: the launcher reports a refusal, which is not a lost node.
        let mut job = awaiting();
        job.step(now, gone(NodeLoss::LeaseExpired));
        job.step(now, Event::Refused(NodeRank(1)));
        job.step(now, Event::Refused(NodeRank(2)));
        assert_eq!(job.verdict().expect("over").cause, None);
        // No replacement after a failed agent, which would fail again, or after a refusal.
        for (refuses, loss) in [
            (false, NodeLoss::LinkClosed(Some(WorkerExit::Code(Status::Bug.code())))),
            (false, NodeLoss::InvalidData("x".to_owned())),
            (true, NodeLoss::LinkClosed(None)),
        ] {
            let mut job = awaiting();
            if refuses {
                job.step(now, Event::Refused(NodeRank(2)));
            } else {
                job.step(now, gone(loss));
                job.step(now, Event::Ready(NodeRank(2)));
            }
            assert!(job.verdict().is_some());
        }
    }

    #[test]
    fn nodes_with_expired_leases_are_lost_together() {
        let now = clock::now();
        let mut job = running(3, now);
        let effects = job.step(now, leases_expired(&[2, 0], now));
        assert!(effects.contains(&Effect::Signal(SIGTERM)), "the third still runs");
        job.step(now, exit(2, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, exit(3, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, idle(1));
        let verdict = job.verdict().expect("over");
        let cause = FailureCause::Node { node: NodeRank(2), loss: NodeLoss::LeaseExpired };
        assert_eq!((&verdict.cause, &verdict.also_lost), (&Some(cause), &vec![NodeRank(0)]));
        let mut job = running(2, now);
        let effects = job.step(now, leases_expired(&[0, 1], now));
        assert!(!effects.contains(&Effect::Kill) && job.verdict().is_some(), "{effects:?}");
        let mut job = preparing(2);
        job.step(now, leases_expired(&[0, 1], now));
        assert_eq!(job.verdict().expect("over").status, Status::LeaseLost);
    }

    #[test]
    fn worker_exit_after_the_loss_of_its_node_is_ignored() {
        let now = clock::now();
        let mut job = running(2, now);
        job.step(now, node_lost(0, NodeLoss::LeaseExpired));
        job.step(now, exit(0, WorkerExit::Code(0), now, &[]));
        let failure = StartFailure { step: StartStep::Exec, errno: 2 };
        job.step(now, Event::NotStarted { rank: Rank(1), failure });
        assert!(job.verdict().is_none(), "the other node still runs");
    }
}

//! Restart of a job in the next epoch after a failure. All workers of the failed epoch have exited
//! and been reaped before: a new epoch shares only the nodes with earlier ones.

use std::time::{Duration, Instant};

use crate::base::{NodeRank, Status};
use crate::job::cause::failure::{FailureCause, Failures, NodeLoss, Verdict};
use crate::job::event::{Effect, OnFailure, OnTerm, StopReason};
use crate::job::signal_numbers::SIGTERM;
use crate::job::state::job_state::{JobPhase, JobState, NodeState};

/// Epochs shorter than this count as a crash loop.
const CRASH_LOOP_EPOCH_MAX: Duration = Duration::from_secs(60);
/// Bounds of the pause between two starts.
pub(crate) const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

impl JobState {
    /// Whether the job may be restarted after this verdict: a worker or node failed without a
    /// request of the user, no process of this epoch is left, and restarts are left.
    pub(crate) fn may_restart(&self, reason: StopReason, verdict: &Verdict) -> bool {
        let can_pass = match &verdict.cause {
            // A program that cannot be executed now could not be executed later either.
            None => reason == StopReason::Arrival,
            Some(FailureCause::NotStarted { .. }) => false,
            Some(
                FailureCause::Worker(_)
                | FailureCause::GaveUp { .. }
                | FailureCause::Exiting { .. }
                | FailureCause::MissingRanks { .. }
                | FailureCause::Node { .. },
            ) => matches!(reason, StopReason::Failure | StopReason::Eviction),
        };
        let is_clean = verdict.unconfirmed.is_empty() && !self.is_dirty;
        let is_wanted = self.request_count == 0 && self.policy.failure == OnFailure::StopAll;
        can_pass
            && is_clean
            && is_wanted
            && (self.is_free(reason, verdict) || self.has_restarts_left())
    }

    /// Whether the job could restart after another failure.
    pub(crate) fn has_restarts_left(&self) -> bool {
        self.epochs.has_restarts_left(self.policy.restarts_max)
    }

    /// Whether a replacement of node 0 would continue the job, which SIGTERM has ended on this one.
    pub fn may_be_taken_over(&self) -> bool {
        let was_asked =
            self.verdict().is_some_and(|verdict| verdict.status == Status::Interrupted(SIGTERM));
        let is_elastic = self.policy.elastic.is_some();
        was_asked
            && !is_elastic
            && self.policy.on_term == OnTerm::EndNode
            && self.has_restarts_left()
    }

    pub(crate) fn begin_pause(
        &mut self,
        now: Instant,
        reason: StopReason,
        verdict: Verdict,
    ) -> Effect {
        let lasted = self
            .workers_started_at
            .map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        let has_failed = self.is_charged(reason, &verdict);
        self.epochs.count_restart(!has_failed);
        self.note_fault(&verdict);
        let is_short = has_failed && lasted < CRASH_LOOP_EPOCH_MAX;
        self.short_epochs = if is_short { self.short_epochs + 1 } else { 0 };
        let pause = if self.changes_members(reason, &verdict) {
            Duration::ZERO
        } else {
            // A lost node needs time before it can be reached again.
            let is_node = !self.failures.nodes.is_empty();
            let first = if is_node { PAUSE_MIN } else { self.policy.first_pause };
            pause_after(first, self.short_epochs)
        };
        self.phase = JobPhase::PausedBeforeRestart { until: now + pause };
        self.previous_verdict = Some(verdict.clone());
        Effect::PauseBeforeRestart { verdict, next: self.epochs.next(), pause }
    }

    /// Begins the next epoch: all nodes are asked again whether they can start, as in the first
    /// one.
    pub(crate) fn begin_epoch(&mut self) -> Vec<Effect> {
        let cut_off = (0..).map(NodeRank).zip(&self.nodes);
        let cut_off = cut_off
            .filter(|(number, node)| node.state == NodeState::Lost || self.is_unusable(*number));
        let cut_off: Vec<_> = cut_off.map(|(number, _)| number).collect();
        self.epochs.begin_next();
        self.ask_nodes(&cut_off);
        self.ends.clear();
        self.workers.iter_mut().for_each(|worker| worker.has_ended = false);
        self.failures = Failures::default();
        self.workers_started_at = None;
        self.phase = JobPhase::Preparing;
        vec![Effect::BeginEpoch(cut_off)]
    }

    /// Whether the agent of a node, although it runs, cannot be used in the next epoch: without its
    /// shim it can start no worker, and on a leaving node it must not.
    fn is_unusable(&self, node: NodeRank) -> bool {
        self.has_lost(node, NodeLoss::is_shim_failure) || self.is_evicted(node)
    }

    pub(crate) fn is_evicted(&self, node: NodeRank) -> bool {
        self.has_lost(node, |loss| *loss == NodeLoss::Evicted)
    }

    fn has_lost(&self, node: NodeRank, how: impl Fn(&NodeLoss) -> bool) -> bool {
        self.failures.nodes.iter().any(|lost| lost.node == node && how(&lost.loss))
    }
}

/// Pause after so many consecutive short epochs: 2 s after the second, then doubled up to the bound.
fn pause_after(first: Duration, short_epochs: u32) -> Duration {
    if short_epochs < 2 {
        return first;
    }
    let doubled = 1u32.checked_shl(short_epochs - 1).unwrap_or(u32::MAX);
    PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Epoch, Rank, WorkerExit, clock};
    use crate::job::testing::{GRACE, exit, idle, node_lost, policy};
    use crate::job::{Event, Policy};

    /// A running job of two nodes with two workers each that may be restarted once.
    fn started(now: Instant) -> JobState {
        let node_of_rank = [0, 0, 1, 1].map(NodeRank).to_vec();
        let mut job = JobState::new(Policy { restarts_max: 1, ..policy() }, node_of_rank);
        all_ready(&mut job, now);
        job
    }

    fn all_ready(job: &mut JobState, now: Instant) {
        job.step(now, Event::Ready(NodeRank(0)));
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [Effect::Start]);
    }

    /// Ends all workers and makes both nodes idle; returns the last effects.
    fn end_epoch(job: &mut JobState, now: Instant) -> Vec<Effect> {
        for rank in 0..4 {
            job.step(now, exit(rank, WorkerExit::Code(1), now, &[15]));
        }
        job.step(now, idle(0));
        job.step(now, idle(1))
    }

    #[test]
    fn restart_waits_for_the_end_of_all_workers() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(3, WorkerExit::Code(1), now, &[15]));
        assert_eq!(job.step(now, idle(1)), [Effect::Wake(now + GRACE)], "node 0 has workers left");
        job.step(now, exit(0, WorkerExit::Code(1), now, &[15]));
        job.step(now, exit(1, WorkerExit::Code(1), now, &[15]));
        let effects = job.step(now, idle(0));
        let [Effect::PauseBeforeRestart { verdict, next: Epoch(1), pause }, Effect::Wake(at)] =
            &effects[..]
        else {
            panic!("{effects:?}");
        };
        assert_eq!((verdict.status, *pause, *at), (Status::Worker(7), PAUSE_MIN, now + PAUSE_MIN));
        assert_eq!(job.step(now, Event::Timer), [Effect::Wake(now + PAUSE_MIN)], "not yet");
        assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), [Effect::BeginEpoch(vec![])]);
        all_ready(&mut job, now);
        assert_eq!(job.running(), 4);
        job.step(now, exit(0, WorkerExit::Code(9), now, &[]));
        end_epoch(&mut job, now);
        let verdict = job.verdict().expect("no restart is left");
        assert_eq!(verdict.status, Status::Worker(9), "the last failure is the cause");
    }

    #[test]
    fn restart_reconnects_lost_nodes_and_nodes_without_shim() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, node_lost(1, NodeLoss::LeaseExpired));
        end_epoch(&mut job, now);
        assert_eq!(
            job.step(now + PAUSE_MIN, Event::Timer),
            [Effect::BeginEpoch(vec![NodeRank(1)])]
        );
        let mut job = started(now);
        job.step(now, node_lost(0, NodeLoss::ShimExited));
        end_epoch(&mut job, now);
        let lost = node_lost(1, NodeLoss::LinkClosed(None));
        assert_eq!(job.step(now, lost), [Effect::Wake(now + PAUSE_MIN)], "while it rests");
        let both = vec![NodeRank(0), NodeRank(1)];
        assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), [Effect::BeginEpoch(both)]);
        let mut job = started(now);
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(3, WorkerExit::Code(1), now, &[15]));
        job.step(now, idle(1));
        job.step(now, node_lost(1, NodeLoss::ShimExited));
        end_epoch(&mut job, now);
        let effects = job.step(now + PAUSE_MIN, Event::Timer);
        assert_eq!(effects, [Effect::BeginEpoch(vec![NodeRank(1)])], "the shim died after `Idle`");
    }

    #[test]
    fn job_ended_in_the_pause_after_an_eviction_may_be_taken_over() {
        let now = clock::now();
        let mut job = started(now);
        job.policy.on_term = OnTerm::EndNode;
        job.step(now, Event::NodeSignal(NodeRank(1), SIGTERM));
        end_epoch(&mut job, now);
        job.step(now, Event::Signal(SIGTERM));
        assert_eq!(job.verdict().map(|verdict| verdict.status), Some(Status::Interrupted(SIGTERM)));
        assert!(job.may_be_taken_over());
        assert_eq!((job.epoch(), job.free_restarts()), (Epoch(0), 1));
    }

    #[test]
    fn evicted_node_is_replaced_without_using_a_restart() {
        let now = clock::now();
        let evicting = |now| {
            let mut job = started(now);
            job.policy.on_term = OnTerm::EndNode;
            job
        };
        let term = Event::NodeSignal(NodeRank(1), SIGTERM);
        let mut job = evicting(now);
        for _ in 0..3 {
            let effects = job.step(now, term.clone());
            assert_eq!(
                effects[..2],
                [Effect::ReportStopping(StopReason::Eviction), Effect::Signal(SIGTERM)]
            );
            let effects = end_epoch(&mut job, now);
            let Effect::PauseBeforeRestart { pause, .. } = &effects[0] else {
                panic!("{effects:?}")
            };
            assert_eq!(*pause, PAUSE_MIN, "it is no crash loop");
            let renewed = [Effect::BeginEpoch(vec![NodeRank(1)])];
            assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), renewed);
            all_ready(&mut job, now);
        }
        assert_eq!((job.epoch(), job.free_restarts()), (Epoch(3), 3));
        // The only restart after a failure that is allowed.
        job.step(now, exit(0, WorkerExit::Code(9), now, &[]));
        end_epoch(&mut job, now);
        assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), [Effect::BeginEpoch(vec![])]);
        all_ready(&mut job, now);
        job.step(now, term.clone());
        end_epoch(&mut job, now);
        assert_eq!(job.verdict().expect("none is left").status, Status::Interrupted(SIGTERM));
        assert!(!job.may_be_taken_over(), "nor for another node 0");
        // When the whole job is deleted, node 0 receives SIGTERM as well.
        let mut job = evicting(now);
        job.step(now, term);
        job.step(now, Event::Signal(SIGTERM));
        end_epoch(&mut job, now);
        assert_eq!(job.verdict().expect("over").status, Status::Interrupted(SIGTERM));
        assert!(job.may_be_taken_over(), "if the other nodes are not asked");
    }

    #[test]
    fn refused_restart_ends_the_job_with_the_first_cause() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        end_epoch(&mut job, now);
        job.step(now + PAUSE_MIN, Event::Timer);
        job.step(now, Event::Ready(NodeRank(0)));
        job.step(now, Event::Refused(NodeRank(1)));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Worker(7));
        assert!(verdict.cause.as_ref().is_some_and(|cause| {
            matches!(cause, FailureCause::Worker(end) if end.rank == Rank(2))
        }));
    }

    #[test]
    fn job_ended_by_the_user_is_not_restarted() {
        #[track_caller]
        fn check(before: &[Event], during: &[Event], status: Status) {
            let now = clock::now();
            let mut job = started(now);
            for event in before {
                job.step(now, event.clone());
            }
            end_epoch(&mut job, now);
            for event in during {
                job.step(now, event.clone());
            }
            assert_eq!(job.verdict().expect("over").status, status);
        }
        let failure = || exit(0, WorkerExit::Code(7), clock::now(), &[]);
        check(&[Event::Signal(15)], &[], Status::Interrupted(15));
        check(&[Event::TimedOut], &[], Status::Timeout);
        check(&[failure(), Event::Signal(2)], &[], Status::Worker(7));
        check(&[failure()], &[Event::Signal(2)], Status::Interrupted(2));
        check(&[failure()], &[Event::TimedOut], Status::Timeout);
    }

    #[test]
    fn timeout_in_the_pause_keeps_the_last_failure() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        end_epoch(&mut job, now);
        job.step(now, Event::TimedOut);
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Timeout);
        let cause = verdict.cause.as_ref();
        assert!(
            matches!(cause, Some(FailureCause::Worker(end)) if end.rank == Rank(2)),
            "{cause:?}"
        );
    }

    #[test]
    fn job_with_unkillable_processes_is_not_restarted() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, exit(0, WorkerExit::Code(7), now, &[]));
        job.step(now, Event::Idle { node: NodeRank(0), is_clean: false });
        job.step(now, idle(1));
        assert_eq!(job.verdict().expect("over").status, Status::Worker(7));
    }

    #[test]
    fn crash_loop_pause_doubles_up_to_a_bound() {
        let seconds = |short| pause_after(PAUSE_MIN, short).as_secs();
        assert_eq!([0, 1, 2, 3, 6, 7, 99].map(seconds), [1, 1, 2, 4, 32, 60, 60]);
        assert_eq!([0, 1, 2].map(|short| pause_after(Duration::ZERO, short).as_secs()), [0, 0, 2]);
    }
}

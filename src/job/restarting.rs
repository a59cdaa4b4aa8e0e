//! From an epoch that failed to the next one. Everybody has been stopped and buried by then: a new
//! epoch has nothing of an earlier one but its nodes.

use std::time::{Duration, Instant};

use super::cause::{Cause, Failures, NodeLoss, Verdict};
use super::event::{Effect, OnFailure, OnTerm, StopReason};
use super::state::{Job, Node, Phase};
use super::stopping::SIGTERM;
use crate::base::{NodeRank, Status};

/// An epoch that lasted so long is no part of a crash loop.
const SHORT_EPOCH_MAX: Duration = Duration::from_secs(60);
/// What a crash loop waits between two starts.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

impl Job {
    /// A failure that is not of our own doing, and whose next epoch would meet nothing of this one.
    pub(super) fn may_restart(&self, reason: StopReason, verdict: &Verdict) -> bool {
        let can_pass = match &verdict.cause {
            // What cannot be executed now cannot be executed later.
            None | Some(Cause::NotStarted { .. }) => false,
            Some(Cause::Worker(_) | Cause::GaveUp { .. } | Cause::Node { .. }) => {
                matches!(reason, StopReason::Failure | StopReason::Leaving)
            }
        };
        let is_buried = verdict.unconfirmed.is_empty() && !self.is_dirty;
        let is_wanted = self.asked == 0 && self.policy.failure == OnFailure::StopAll;
        can_pass && is_buried && is_wanted && self.has_restarts_left()
    }

    /// Whether a failure now would not be the end.
    pub(super) fn has_restarts_left(&self) -> bool {
        self.epoch.0 - self.uncharged < self.policy.restarts_max
    }

    /// Whether another node 0 would go on where we stop, asked by a signal.
    pub fn may_be_taken_over(&self) -> bool {
        let was_asked =
            self.verdict().is_some_and(|verdict| verdict.status == Status::Interrupted(SIGTERM));
        was_asked && self.policy.on_term == OnTerm::EndsNode && self.has_restarts_left()
    }

    pub(super) fn rest(&mut self, now: Instant, reason: StopReason, verdict: Verdict) -> Effect {
        let lasted =
            self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        let has_failed = reason != StopReason::Leaving;
        self.uncharged += u32::from(!has_failed);
        let is_short = has_failed && lasted < SHORT_EPOCH_MAX;
        self.short_epochs = if is_short { self.short_epochs + 1 } else { 0 };
        let pause = pause_after(self.short_epochs);
        self.phase = Phase::Resting { until: now + pause };
        self.before = Some(verdict.clone());
        Effect::Rest { verdict, next: self.epoch.next(), pause }
    }

    /// The next epoch begins with the question whether nodes can start, as the first one did.
    pub(super) fn renew(&mut self) -> Vec<Effect> {
        let cut_off = (0..).map(NodeRank).zip(&self.nodes);
        let cut_off =
            cut_off.filter(|(node, state)| **state == Node::Lost || self.is_of_no_use(*node));
        let cut_off: Vec<_> = cut_off.map(|(node, _)| node).collect();
        self.epoch = self.epoch.next();
        self.nodes.fill(Node::Asked);
        self.ends.clear();
        self.ended.fill(false);
        self.failures = Failures::default();
        self.began = None;
        self.phase = Phase::Preparing;
        vec![Effect::Renew(cut_off)]
    }

    /// An agent without a shim lives, but can start nothing; one of a node that leaves is not to.
    fn is_of_no_use(&self, node: NodeRank) -> bool {
        self.has_lost(node, NodeLoss::is_of_shim) || self.is_leaving(node)
    }

    pub(super) fn is_leaving(&self, node: NodeRank) -> bool {
        self.has_lost(node, |loss| *loss == NodeLoss::Leaves)
    }

    fn has_lost(&self, node: NodeRank, how: impl Fn(&NodeLoss) -> bool) -> bool {
        self.failures.nodes.iter().any(|(_, lost, loss)| *lost == node && how(loss))
    }
}

/// Twice as long after every short epoch, up to a bound.
fn pause_after(short_epochs: u32) -> Duration {
    let doubled = 1u32.checked_shl(short_epochs.saturating_sub(1)).unwrap_or(u32::MAX);
    PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Epoch, Rank, WorkerExit, clock};
    use crate::job::testing::{GRACE, exit, idle, policy};
    use crate::job::{Event, Policy};

    /// A job of two nodes with two workers each that is restarted once.
    fn started(now: Instant) -> Job {
        let node_of_rank = [0, 0, 1, 1].map(NodeRank).to_vec();
        let mut job = Job::new(Policy { restarts_max: 1, ..policy() }, node_of_rank);
        all_ready(&mut job, now);
        job
    }

    fn all_ready(job: &mut Job, now: Instant) {
        job.step(now, Event::Ready(NodeRank(0)));
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [Effect::Start]);
    }

    /// Ends all but some; returns what comes of it.
    fn bury(job: &mut Job, now: Instant) -> Vec<Effect> {
        for rank in 0..4 {
            job.step(now, exit(rank, WorkerExit::Code(1), now, &[15]));
        }
        job.step(now, idle(0));
        job.step(now, idle(1))
    }

    #[test]
    fn a_failed_epoch_is_buried_everywhere_before_the_next_one_begins() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(3, WorkerExit::Code(1), now, &[15]));
        assert_eq!(job.step(now, idle(1)), [Effect::Wake(now + GRACE)], "node 0 has workers left");
        job.step(now, exit(0, WorkerExit::Code(1), now, &[15]));
        job.step(now, exit(1, WorkerExit::Code(1), now, &[15]));
        let effects = job.step(now, idle(0));
        let [Effect::Rest { verdict, next: Epoch(1), pause }, Effect::Wake(at)] = &effects[..]
        else {
            panic!("{effects:?}");
        };
        assert_eq!((verdict.status, *pause, *at), (Status::Worker(7), PAUSE_MIN, now + PAUSE_MIN));
        assert_eq!(job.step(now, Event::Timer), [Effect::Wake(now + PAUSE_MIN)], "not yet");
        assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), [Effect::Renew(vec![])]);
        all_ready(&mut job, now);
        assert_eq!(job.running(), 4);
        job.step(now, exit(0, WorkerExit::Code(9), now, &[]));
        bury(&mut job, now);
        let verdict = job.verdict().expect("no restart is left");
        assert_eq!(verdict.status, Status::Worker(9), "the last failure is the cause");
    }

    #[test]
    fn a_lost_node_and_one_without_a_shim_get_new_links() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, Event::NodeLost { node: NodeRank(1), loss: NodeLoss::Silent });
        bury(&mut job, now);
        assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), [Effect::Renew(vec![NodeRank(1)])]);
        let mut job = started(now);
        job.step(now, Event::NodeLost { node: NodeRank(0), loss: NodeLoss::ShimDied });
        bury(&mut job, now);
        let lost = Event::NodeLost { node: NodeRank(1), loss: NodeLoss::LinkClosed(None) };
        assert_eq!(job.step(now, lost), [Effect::Wake(now + PAUSE_MIN)], "while it rests");
        let both = vec![NodeRank(0), NodeRank(1)];
        assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), [Effect::Renew(both)]);
        let mut job = started(now);
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(3, WorkerExit::Code(1), now, &[15]));
        job.step(now, idle(1));
        job.step(now, Event::NodeLost { node: NodeRank(1), loss: NodeLoss::ShimDied });
        bury(&mut job, now);
        let effects = job.step(now + PAUSE_MIN, Event::Timer);
        assert_eq!(effects, [Effect::Renew(vec![NodeRank(1)])], "it died after its last word");
    }

    #[test]
    fn a_node_that_is_asked_to_end_is_replaced_and_that_is_no_failure() {
        let now = clock::now();
        let evicting = |now| {
            let mut job = started(now);
            job.policy.on_term = OnTerm::EndsNode;
            job
        };
        let term = Event::SignalAt(NodeRank(1), SIGTERM);
        let mut job = evicting(now);
        for _ in 0..3 {
            let effects = job.step(now, term.clone());
            assert_eq!(
                effects[..2],
                [Effect::Stopping(StopReason::Leaving), Effect::Signal(SIGTERM)]
            );
            let effects = bury(&mut job, now);
            let Effect::Rest { pause, .. } = &effects[0] else { panic!("{effects:?}") };
            assert_eq!(*pause, PAUSE_MIN, "it is no crash loop");
            let renewed = [Effect::Renew(vec![NodeRank(1)])];
            assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), renewed);
            all_ready(&mut job, now);
        }
        assert_eq!((job.epoch(), job.uncharged()), (Epoch(3), 3));
        // The only restart that a failure may have.
        job.step(now, exit(0, WorkerExit::Code(9), now, &[]));
        bury(&mut job, now);
        assert_eq!(job.step(now + PAUSE_MIN, Event::Timer), [Effect::Renew(vec![])]);
        all_ready(&mut job, now);
        job.step(now, term.clone());
        bury(&mut job, now);
        assert_eq!(job.verdict().expect("none is left").status, Status::Interrupted(SIGTERM));
        assert!(!job.may_be_taken_over(), "nor for another node 0");
        // Whoever deletes the job asks node 0 as well.
        let mut job = evicting(now);
        job.step(now, term);
        job.step(now, Event::Signal(SIGTERM));
        bury(&mut job, now);
        assert_eq!(job.verdict().expect("over").status, Status::Interrupted(SIGTERM));
        assert!(job.may_be_taken_over(), "if nobody asks the others");
    }

    #[test]
    fn a_restart_that_a_node_refuses_ends_the_job_with_the_cause() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        bury(&mut job, now);
        job.step(now + PAUSE_MIN, Event::Timer);
        job.step(now, Event::Ready(NodeRank(0)));
        job.step(now, Event::Refused(NodeRank(1)));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Worker(7));
        assert!(
            verdict.cause.as_ref().is_some_and(|cause| {
                matches!(cause, Cause::Worker(end) if end.rank == Rank(2))
            })
        );
    }

    #[test]
    fn what_the_user_wants_to_end_is_not_restarted() {
        #[track_caller]
        fn check(before: &[Event], during: &[Event], status: Status) {
            let now = clock::now();
            let mut job = started(now);
            for event in before {
                job.step(now, event.clone());
            }
            bury(&mut job, now);
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
    fn nothing_is_restarted_beside_what_could_not_be_killed() {
        let now = clock::now();
        let mut job = started(now);
        job.step(now, exit(0, WorkerExit::Code(7), now, &[]));
        job.step(now, Event::Idle { node: NodeRank(0), is_clean: false });
        job.step(now, idle(1));
        assert_eq!(job.verdict().expect("over").status, Status::Worker(7));
    }

    #[test]
    fn a_crash_loop_waits_longer_and_longer_up_to_a_bound() {
        let seconds = |short| pause_after(short).as_secs();
        assert_eq!([0, 1, 2, 3, 6, 7, 99].map(seconds), [1, 1, 2, 4, 32, 60, 60]);
    }
}

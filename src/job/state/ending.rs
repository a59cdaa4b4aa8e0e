//! End of an epoch: the verdict, or a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::base::{NodeRank, Rank, Status};
use crate::job::cause::evidence::Evidence;
use crate::job::cause::failure::{FailureCause, NodeLoss, Verdict, WorkerEnd, WorkerReports};
use crate::job::cause::greatest_status::find_greatest_status;
use crate::job::cause::known_texts::{FailureClass, tells_of_another};
use crate::job::cause::root_cause;
use crate::job::event::{Effect, OnFailure, StopReason};
use crate::job::state::job_state::{JobPhase, JobState, NodeState};

/// Time limit for collecting what workers reported; later reports are ignored. The reporter, which
/// has to accept the last lines first, may be blocked by the terminal.
const EVIDENCE_TIMEOUT: Duration = Duration::from_secs(3);

impl JobState {
    /// The verdict, or the pause before the next epoch, once no node has a process left.
    pub(crate) fn end_epoch_if_over(&mut self, now: Instant) -> Option<Effect> {
        if self.nodes.iter().any(|node| !node.state.is_over()) {
            return None;
        }
        let reason = match self.phase {
            JobPhase::Running => StopReason::Failure,
            JobPhase::Stopping { reason, .. } => reason,
            JobPhase::Preparing
            | JobPhase::CollectingEvidence { .. }
            | JobPhase::PausedBeforeRestart { .. }
            | JobPhase::Done(_) => return None,
        };
        self.conclude_or_collect_evidence(now, reason)
    }

    /// The verdict, after the reports of the workers have been requested where they may change it.
    pub(crate) fn conclude_or_collect_evidence(
        &mut self,
        now: Instant,
        reason: StopReason,
    ) -> Option<Effect> {
        let reason = self.reason_of_end(reason);
        let needs_cause = matches!(reason, StopReason::Failure | StopReason::Eviction);
        let is_asked = self.policy.has_evidence && self.policy.failure == OnFailure::StopAll;
        let failed = self.ends.iter().filter(|end| !end.exit.is_success() && !end.is_lost());
        // A worker that was stopped and exited with 0 may be the one for which the others waited.
        let stopped =
            self.ends.iter().filter(|end| end.exit.is_success() && !end.signals_sent.is_empty());
        let ranks: Vec<Rank> = failed.chain(stopped).map(|end| end.rank).collect();
        if !needs_cause || !is_asked || ranks.is_empty() {
            return self.conclude(now, reason);
        }
        self.phase = JobPhase::CollectingEvidence { reason, until: now + EVIDENCE_TIMEOUT };
        Some(Effect::CollectEvidence(ranks))
    }

    /// Handles the collected reports of the workers.
    pub(crate) fn on_evidence(
        &mut self,
        now: Instant,
        evidence: BTreeMap<Rank, Evidence>,
    ) -> Vec<Effect> {
        // The reports arrived too late.
        let JobPhase::CollectingEvidence { reason, .. } = self.phase else {
            return Vec::new();
        };
        self.failures.evidence = evidence;
        self.conclude(now, reason).into_iter().collect()
    }

    /// The verdict, or the pause before the next epoch.
    pub(crate) fn conclude(&mut self, now: Instant, reason: StopReason) -> Option<Effect> {
        let mut verdict = self.verdict_for(reason);
        if self.may_restart(reason, &verdict) {
            return Some(self.begin_pause(now, reason, verdict));
        }
        if reason == StopReason::Arrival {
            verdict = self.verdict_without_newcomer();
        }
        self.phase = JobPhase::Done(verdict);
        None
    }

    /// Why the epoch ended, if the workers were stopped for this reason: neither for a newcomer nor for a node
    /// that leaves if all had succeeded before they were stopped, and not for a newcomer if one had failed
    /// before.
    fn reason_of_end(&mut self, reason: StopReason) -> StopReason {
        let has_succeeded = |end: &WorkerEnd| end.exit.is_success() && end.signals_sent.is_empty();
        let is_over = self.workers.len() == self.ends.len() && self.ends.iter().all(has_succeeded);
        if is_over && matches!(reason, StopReason::Arrival | StopReason::Eviction) {
            self.failures.nodes.retain(|lost| lost.loss != NodeLoss::Evicted);
            return StopReason::Failure;
        }
        let has_failed = self.failures.stopped_at.is_some_and(|stop| self.has_failed_before(stop));
        if has_failed && reason == StopReason::Arrival { StopReason::Failure } else { reason }
    }

    /// Whether a worker failed by itself, or a node was lost, before this time.
    fn has_failed_before(&self, stop: Instant) -> bool {
        let failed = self.ends.iter().filter(|end| end.is_own_failure()).map(|end| end.at);
        let lost = self.failures.nodes.iter().filter(|lost| lost.loss != NodeLoss::Evicted);
        let lost = lost.map(|lost| lost.since);
        let unstarted = self.failures.unstarted.iter().map(|(at, ..)| *at);
        failed.chain(lost).chain(unstarted).any(|at| at < stop)
    }

    /// The verdict of a job whose workers were stopped for a newcomer, and which cannot go on: a process could
    /// not be killed, or a node did not confirm that none is left. The workers that remuda stopped are not the
    /// cause.
    fn verdict_without_newcomer(&self) -> Verdict {
        if !self.failures.nodes.is_empty() {
            return self.verdict_for(StopReason::Failure);
        }
        Verdict { status: Status::LeaseLost, ..self.verdict_for(StopReason::Arrival) }
    }

    pub(crate) fn verdict_for(&self, reason: StopReason) -> Verdict {
        let cause = match reason {
            StopReason::Failure | StopReason::Eviction => match self.policy.failure {
                OnFailure::StopAll => root_cause::find(&self.ends, &self.failures),
                OnFailure::LetRun => find_greatest_status(&self.ends, &self.failures),
            },
            StopReason::Arrival | StopReason::Timeout | StopReason::Signal(_) => None,
        };
        let status = match (reason, &cause) {
            (StopReason::Signal(signal), _) => Status::Interrupted(signal),
            (StopReason::Timeout, _) => Status::Timeout,
            (StopReason::Failure | StopReason::Eviction, Some(cause)) => cause.status(),
            (StopReason::Failure | StopReason::Eviction, None) | (StopReason::Arrival, _) => {
                Status::Success
            }
        };
        // Nodes that were not reached, or cannot start, have no process of this epoch.
        let open = (0u32..).zip(&self.nodes).filter(|(_, node)| node.state == NodeState::Running);
        let others = self.ends.iter().filter(|end| !self.is_cause(cause.as_ref(), end.rank));
        let (failed, others): (Vec<_>, Vec<_>) = others.partition(|end| end.is_own_failure());
        Verdict {
            status,
            also_lost: self.also_lost(cause.as_ref()),
            also_failed: failed.len(),
            stopped: others.iter().filter(|end| !end.signals_sent.is_empty()).count(),
            reports: Box::new(WorkerReports {
                evidence: self.evidence_of(cause.as_ref()),
                first_exception: self
                    .evidence_of_first(cause.as_ref())
                    .and_then(|first| first.exception.clone()),
                was_joining: self
                    .evidence_of_first(cause.as_ref())
                    .is_some_and(|first| first.is_joining),
                same_exception: self.same_exceptions(cause.as_ref()),
                lost_peer: self.reporters(FailureClass::LostPeer, cause.as_ref()),
                was_told: self.ranks_that_were_told(cause.as_ref()),
                timed_out: self.reporters(FailureClass::TimedOut, cause.as_ref()),
            }),
            cause,
            unconfirmed: open.map(|(index, _)| NodeRank(index)).collect(),
        }
    }

    /// What the worker that is the cause reported itself.
    fn evidence_of(&self, cause: Option<&FailureCause>) -> Option<Evidence> {
        let rank = match cause? {
            FailureCause::Worker(end) => end.rank,
            FailureCause::GaveUp { rank, .. } | FailureCause::Exiting { rank, .. } => *rank,
            FailureCause::MissingRanks { .. }
            | FailureCause::NotStarted { .. }
            | FailureCause::Node { .. } => return None,
        };
        self.failures.evidence.get(&rank).cloned()
    }

    /// What the first worker that failed because of missing ones reported.
    fn evidence_of_first(&self, cause: Option<&FailureCause>) -> Option<&Evidence> {
        let Some(FailureCause::MissingRanks { first, .. }) = cause else { return None };
        self.failures.evidence.get(&first.rank)
    }

    /// Workers that reported the exception of the cause as well.
    fn same_exceptions(&self, cause: Option<&FailureCause>) -> Vec<Rank> {
        let line_of = |evidence: &Evidence| {
            let exception = evidence.exception.as_ref()?;
            let is_own = evidence.class == FailureClass::Own;
            let line = exception.lines().next().unwrap_or_default();
            // A refused `--local_rank=0` differs from rank to rank.
            let is_number = |c: char| evidence.is_usage_error && c.is_ascii_digit();
            is_own.then(|| line.replace(is_number, ""))
        };
        let Some(exception) = self.evidence_of(cause).and_then(|evidence| line_of(&evidence))
        else {
            return Vec::new();
        };
        let is_same = |evidence: &Evidence| line_of(evidence).as_ref() == Some(&exception);
        let reported = self.failures.evidence.iter().filter(|(_, evidence)| is_same(evidence));
        let ranks = reported.map(|(rank, _)| *rank);
        ranks.filter(|rank| !self.is_cause(cause, *rank)).collect()
    }

    /// Workers that reported this class of failure, except the cause.
    fn reporters(&self, class: FailureClass, cause: Option<&FailureCause>) -> Vec<Rank> {
        let reported = self.failures.evidence.iter().filter(|(_, found)| found.class == class);
        let ranks = reported.map(|(rank, _)| *rank);
        ranks.filter(|rank| !self.is_cause(cause, *rank)).collect()
    }

    /// Workers that another rank told of the failure, except the cause.
    fn ranks_that_were_told(&self, cause: Option<&FailureCause>) -> Vec<Rank> {
        let lost = self.reporters(FailureClass::LostPeer, cause);
        let exception = |rank: &Rank| self.failures.evidence[rank].exception.as_deref();
        lost.into_iter().filter(|rank| exception(rank).is_some_and(tells_of_another)).collect()
    }

    /// Nodes that were lost and are not the cause.
    pub(crate) fn also_lost(&self, cause: Option<&FailureCause>) -> Vec<NodeRank> {
        let lost = self.failures.nodes.iter().map(|lost| lost.node);
        let is_other = |node: &NodeRank| !matches!(cause, Some(FailureCause::Node { node: named, .. }) if named == node);
        let others: BTreeSet<_> = lost.filter(is_other).collect();
        others.into_iter().collect()
    }

    /// Whether a worker is the cause, or was lost with the node that is the cause.
    pub(crate) fn is_cause(&self, cause: Option<&FailureCause>, rank: Rank) -> bool {
        match cause {
            Some(FailureCause::Worker(end)) => end.rank == rank,
            Some(
                FailureCause::GaveUp { rank: named, .. }
                | FailureCause::Exiting { rank: named, .. },
            ) => *named == rank,
            Some(FailureCause::MissingRanks { ranks, .. }) => ranks.contains(&rank),
            Some(FailureCause::NotStarted { rank: failed, .. }) => *failed == rank,
            Some(FailureCause::Node { node, .. }) => self.workers[rank.index()].node == *node,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{WorkerExit, clock};
    use crate::job::Event;
    use crate::job::signal_numbers::SIGTERM;
    use crate::job::testing::{exit, idle, node_lost, running};

    #[test]
    fn verdict_counts_failed_and_stopped_workers_separately() {
        let now = clock::now();
        let mut job = running(2, now);
        job.step(now, exit(3, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(1, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, exit(0, WorkerExit::Code(0), now, &[SIGTERM]));
        job.step(now, idle(0));
        job.step(now, idle(1));
        let verdict = job.verdict().expect("over");
        assert_eq!((verdict.also_failed, verdict.stopped), (1, 2));
    }

    /// A job of one node whose rank 1 failed and whose rank 0 was stopped; all have exited at
    /// `now`.
    fn over(now: Instant) -> (JobState, Vec<Effect>) {
        let mut job = running(1, now);
        job.policy.has_evidence = true;
        let term = WorkerExit::Signal { signal: SIGTERM, core: false };
        job.step(now, exit(1, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(0, term, now, &[SIGTERM]));
        let effects = job.step(now, idle(0));
        (job, effects)
    }

    fn own_failure(at: Instant) -> Evidence {
        let text = b"[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: bad\n";
        Evidence::of_output(text, |_| at).expect("a traceback")
    }

    #[test]
    fn evidence_is_collected_before_the_verdict() {
        let now = clock::now();
        let (mut job, effects) = over(now);
        let ranks = vec![Rank(1), Rank(0)];
        let wake = Effect::Wake(now + EVIDENCE_TIMEOUT);
        assert_eq!(effects, [Effect::CollectEvidence(ranks), wake]);
        assert!(job.verdict().is_none() && job.is_stopping());
        let found = BTreeMap::from([(Rank(0), own_failure(now))]);
        assert_eq!(job.step(now, Event::Evidence(found.clone())), []);
        let verdict = job.verdict().expect("over").clone();
        let cause = verdict.cause.as_ref().expect("a cause");
        assert!(
            matches!(cause, FailureCause::Exiting { rank: Rank(0), first: Some(_) }),
            "{cause:?}"
        );
        assert_eq!(verdict.status, Status::Worker(7), "that of the first that failed by itself");
        assert_eq!(verdict.reports.evidence.as_ref(), found.get(&Rank(0)));
        assert_eq!(job.step(now, Event::Evidence(BTreeMap::new())), [], "it comes once");
    }

    #[test]
    fn workers_with_the_same_exception_are_found() {
        let now = clock::now();
        let mut job = running(1, now);
        job.policy.has_evidence = true;
        job.step(now, exit(1, WorkerExit::Code(1), now, &[]));
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        job.step(now, idle(0));
        let found = [Rank(0), Rank(1)].map(|rank| (rank, own_failure(now)));
        job.step(now, Event::Evidence(BTreeMap::from(found)));
        assert_eq!(job.verdict().expect("over").reports.same_exception, [Rank(1)]);
    }

    #[test]
    fn evidence_that_is_late_is_ignored() {
        let now = clock::now();
        let (mut job, _) = over(now);
        job.step(now + EVIDENCE_TIMEOUT / 2, Event::Timer);
        assert!(job.verdict().is_none());
        job.step(now + EVIDENCE_TIMEOUT, Event::Timer);
        assert_eq!(job.verdict().expect("over").status, Status::Worker(7));
        let (mut job, _) = over(now);
        job.step(now, Event::Signal(SIGTERM));
        assert_eq!(job.verdict().expect("over").status, Status::Worker(7), "it was over before");
    }

    #[test]
    fn success_and_interrupt_need_no_evidence() {
        let now = clock::now();
        let mut job = running(1, now);
        job.policy.has_evidence = true;
        job.step(now, exit(0, WorkerExit::Code(0), now, &[]));
        job.step(now, exit(1, WorkerExit::Code(0), now, &[]));
        assert_eq!(job.step(now, idle(0)), []);
        assert_eq!(job.verdict().expect("over").status, Status::Success);
        let mut job = running(1, now);
        job.policy.has_evidence = true;
        job.step(now, Event::Signal(SIGTERM));
        job.step(now, exit(0, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, exit(1, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, idle(0));
        assert_eq!(job.verdict().expect("over").status, Status::Interrupted(SIGTERM));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        /// In any order of events: exit 0 only if every worker returned 0, and a job without a
        /// running node has a verdict.
        #[test]
        fn success_needs_code_0_of_every_worker(
            codes in proptest::collection::vec(0u8..3, 4),
            order in proptest::sample::subsequence(vec![0u32, 1, 2, 3], 4),
            signal_at in proptest::option::of(0usize..4),
            lost in proptest::option::of(0u32..2),
        ) {
            let now = clock::now();
            let mut job = running(2, now);
            for (index, rank) in order.iter().enumerate() {
                if signal_at == Some(index) {
                    job.step(now, Event::Signal(SIGTERM));
                }
                job.step(now, exit(*rank, WorkerExit::Code(codes[*rank as usize]), now, &[]));
            }
            if let Some(node) = lost {
                job.step(now, node_lost(node, NodeLoss::LeaseExpired));
            }
            job.step(now, idle(0));
            job.step(now, idle(1));
            let verdict = job.verdict().expect("every node is over");
            let clean = codes.iter().all(|code| *code == 0) && signal_at.is_none() && lost.is_none();
            proptest::prop_assert_eq!(verdict.status == Status::Success, clean);
        }
    }
}

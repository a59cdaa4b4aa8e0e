//! Selection of the failure from which the others followed.
//!
//! A rank that fails makes the collectives of all other ranks fail too, and these often exit before
//! it does. The order of exits is therefore weak evidence: what workers reported themselves counts
//! first, then how they exited, then when.

use std::time::{Duration, Instant};

use crate::base::Rank;
use crate::job::cause::different_calls::deviating_rank_cause;
use crate::job::cause::evidence::{EXIT_AFTER_TRACEBACK_MAX, Evidence};
use crate::job::cause::failure::{FailureCause, Failures, LostNode, NodeLoss, WorkerEnd};
use crate::job::cause::known_texts::FailureClass;
use crate::job::cause::missing_ranks::{class_of, has_timeouts, is_witness, missing_ranks_cause};

/// Exits by signal within this time of the first failure compete for being its cause. Later ones
/// count as a result of stopping the job, whatever the signal.
const COMPETITION_WINDOW: Duration = Duration::from_millis(200);

/// A worker whose connections end so soon after it printed an exception was exiting because of it, even if
/// it printed more meanwhile.
const LEAVING_MAX: Duration = Duration::from_secs(5);

/// A worker that failed for a reason of its own.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    end: &'a WorkerEnd,
    /// When it failed, which may be long before it exited.
    at: Instant,
    /// Whether it reported the failure itself.
    is_reported: bool,
    /// Whether the failure certainly ended the worker.
    is_certain: bool,
}

/// Finds the cause. All failures within [`COMPETITION_WINDOW`] of the first one compete: a worker that was
/// never started, then a node that was lost, then a death by a signal not sent by remuda, then the
/// earliest failure. A worker that reported that a peer was lost, or did not take part, is no cause
/// as long as there is another one.
pub(crate) fn find(ends: &[WorkerEnd], failures: &Failures) -> Option<FailureCause> {
    let mut candidates: Vec<_> = ends.iter().filter_map(|end| candidate(end, failures)).collect();
    // A worker that was stopped may only have logged what looks like its failure.
    let is_certain = candidates.iter().any(|candidate| candidate.is_certain)
        || !failures.nodes.is_empty()
        || !failures.unstarted.is_empty();
    candidates.retain(|candidate| candidate.is_certain || !is_certain);
    if !is_certain && let Some(cause) = drop_survivors(&mut candidates, ends, failures) {
        return Some(cause);
    }
    let own = candidates.iter().min_by_key(|candidate| (candidate.at, candidate.end.rank));
    let lost = first_lost_node(failures, own.map(|own| own.at));
    let not_started = failures.unstarted.iter().min_by_key(|(at, ..)| *at);
    let times = [own.map(|own| own.at), lost.map(|(at, _)| at), not_started.map(|(at, ..)| *at)];
    let Some(first) = times.into_iter().flatten().min() else {
        return find_by_reports(ends, failures);
    };
    let in_time = |at: Instant| at <= first + COMPETITION_WINDOW;
    if let Some((_, rank, failure)) = not_started.filter(|(at, ..)| in_time(*at)) {
        return Some(FailureCause::NotStarted { rank: *rank, failure: *failure });
    }
    if let Some((_, LostNode { node, loss, .. })) = lost.filter(|(at, _)| in_time(*at)) {
        return Some(FailureCause::Node { node: *node, loss: loss.clone() });
    }
    let own = own?;
    let outranks = |other: &&Candidate<'_>| {
        // A crash may result from the failure that was reported before; SIGKILL never does.
        let is_stronger = if own.is_reported {
            other.end.is_killed_from_outside()
        } else {
            other.end.is_killed_by_foreign_signal()
        };
        is_stronger && in_time(other.at)
    };
    let strongest = candidates.iter().filter(outranks).min_by_key(|other| other.at).unwrap_or(own);
    if let Some(cause) = deviating_rank_cause(strongest.end, ends, failures) {
        return Some(cause);
    }
    if strongest.end.is_own_failure() {
        return Some(follow_peer_losses(strongest.end, ends, failures));
    }
    let own_failures = ends.iter().filter(|end| end.is_own_failure());
    let first = own_failures.min_by_key(|end| end.at).cloned();
    Some(FailureCause::Exiting { rank: strongest.end.rank, first })
}

/// The lost node that may be the cause, and when its loss competes with other failures; `own_at` is when the
/// first worker failed by itself.
fn first_lost_node(failures: &Failures, own_at: Option<Instant>) -> Option<(Instant, &LostNode)> {
    let is_after_stop =
        |at: Instant| failures.stopped_at.is_some_and(|stop| stop + COMPETITION_WINDOW < at);
    // A loss that began while the job was being stopped did not cause the stop.
    let is_late = |lost: &LostNode| lost.loss.has_known_begin() && is_after_stop(lost.since);
    // A loss that led to the stop precedes those noticed later, which may have begun before it or after it. A
    // request to leave is noticed at once. Of nodes that were lost at the same time, the first one reported.
    let is_later = |lost: &LostNode| failures.stopped_at.is_some_and(|stop| stop < lost.at);
    let has_asked = |lost: &LostNode| is_late(lost) && lost.loss == NodeLoss::Evicted;
    let by_order = |it: &&LostNode| (is_late(it), has_asked(it), is_later(it), it.since);
    let lost = failures.nodes.iter().min_by_key(by_order)?;
    // A worker that failed while it was being stopped did not cause the stop; a silence before it may have.
    let precedes_own = own_at.is_some_and(is_after_stop) && !is_late(lost);
    Some((if precedes_own { lost.since } else { lost.at }, lost))
}

/// Compares tracebacks of stopped workers, which may only have been logged, with what the others
/// reported: the cause, if these reports point to a worker that printed none. Removes the workers
/// that have survived their tracebacks, unless there is no other explanation.
fn drop_survivors(
    candidates: &mut Vec<Candidate<'_>>,
    ends: &[WorkerEnd],
    failures: &Failures,
) -> Option<FailureCause> {
    let has_survived = |candidate: &Candidate<'_>| {
        let evidence = failures.evidence.get(&candidate.end.rank);
        evidence.is_some_and(|evidence| evidence.is_survived_by(failures.stopped_at))
    };
    let survivors: Vec<Rank> =
        candidates.iter().filter(|it| has_survived(it)).map(|it| it.end.rank).collect();
    // A program in which other ranks mark the exceptions that end them does not mark logged ones.
    let is_doubtful = survivors.len() == candidates.len()
        || failures.evidence.values().any(|evidence| evidence.is_final);
    if candidates.is_empty() || !is_doubtful {
        candidates.retain(|candidate| !has_survived(candidate));
        return None;
    }
    if let Some(lost_at) = first_peer_loss(ends, failures)
        && keep_leaving(candidates, &survivors, lost_at)
    {
        return None;
    }
    let first = ends.iter().filter(|end| end.is_own_failure()).min_by_key(|end| end.at)?;
    if let Some(cause) = missing_ranks_cause(ends, failures, first) {
        return Some(cause);
    }
    if survivors.len() < candidates.len() {
        candidates.retain(|candidate| !has_survived(candidate));
        return None;
    }
    let is_witness = |end: &WorkerEnd| is_witness(class_of(end.rank, failures));
    let mut others = ends.iter().filter(|end| !survivors.contains(&end.rank));
    if 1 < survivors.len() || !others.all(is_witness) {
        candidates.clear();
        return None;
    }
    // All others waited for the survivor, or lost it: if it was lost, it was exiting.
    has_timeouts(ends, failures).then(|| FailureCause::MissingRanks {
        ranks: survivors,
        reported_class: FailureClass::TimedOut,
        first: first.clone(),
    })
}

/// Keeps the candidates that were exiting because of their exceptions when their peers lost them, if there
/// are any: better those that printed nothing after it. Returns whether there are any.
fn keep_leaving(candidates: &mut Vec<Candidate<'_>>, survivors: &[Rank], lost_at: Instant) -> bool {
    let was_leaving = |candidate: &Candidate<'_>| {
        lost_at.saturating_duration_since(candidate.at) <= LEAVING_MAX
            && candidate.at <= lost_at + COMPETITION_WINDOW
    };
    let is_quiet = |it: &Candidate<'_>| was_leaving(it) && !survivors.contains(&it.end.rank);
    let has_quiet = candidates.iter().any(is_quiet);
    let has_any = candidates.iter().any(was_leaving);
    if has_any {
        candidates.retain(|it| if has_quiet { is_quiet(it) } else { was_leaving(it) });
    }
    has_any
}

/// When the first worker reported that it had lost a peer, if none waited until its timeout.
fn first_peer_loss(ends: &[WorkerEnd], failures: &Failures) -> Option<Instant> {
    if has_timeouts(ends, failures) {
        return None;
    }
    let reports = ends.iter().filter_map(|end| failures.evidence.get(&end.rank));
    reports.filter(|it| it.class == FailureClass::LostPeer).map(|it| it.at).min()
}

/// Whether a worker failed for a reason of its own, and when.
fn candidate<'a>(end: &'a WorkerEnd, failures: &Failures) -> Option<Candidate<'a>> {
    let evidence = failures.evidence.get(&end.rank);
    if end.exit.is_success() {
        return None;
    }
    let was_stopped = !end.signals_sent.is_empty();
    let by_itself = |at, is_reported| {
        let candidate = Candidate { end, at, is_reported, is_certain: true };
        end.is_own_failure().then_some(candidate)
    };
    match evidence {
        Some(Evidence { class: FailureClass::Own, at, is_final, .. })
            if !end.is_killed_from_outside() && !end.is_lost() =>
        {
            let is_valid = |end: Instant| {
                *is_final || end.saturating_duration_since(*at) <= EXIT_AFTER_TRACEBACK_MAX
            };
            if end.is_own_failure() {
                let at = if is_valid(end.at) { (*at).min(end.at) } else { end.at };
                return by_itself(at, true);
            }
            // The worker was already exiting when it was stopped.
            let was_leaving = failures
                .stopped_at
                .is_none_or(|stop| *at <= stop + COMPETITION_WINDOW && is_valid(stop));
            let candidate = Candidate { end, at: *at, is_reported: true, is_certain: *is_final };
            (was_stopped && was_leaving).then_some(candidate)
        }
        Some(Evidence { class: FailureClass::LostPeer | FailureClass::TimedOut, .. })
            if !end.is_killed() =>
        {
            None
        }
        _ => by_itself(end.at, false),
    }
}

/// The cause where all failed workers had lost their peers: the ranks that left the collective, if
/// they can be determined, else the rank that noticed it first.
fn find_by_reports(ends: &[WorkerEnd], failures: &Failures) -> Option<FailureCause> {
    let by_itself = ends.iter().filter(|end| end.is_own_failure());
    let Some(first) = by_itself.min_by_key(|end| end.at) else {
        // All failed only after they were stopped: the earliest exit is the best evidence.
        let failed = ends.iter().filter(|end| !end.exit.is_success());
        return failed.min_by_key(|end| end.at).cloned().map(FailureCause::Worker);
    };
    if failures.peer_losses.iter().any(|(reporter, _)| *reporter == first.rank) {
        return Some(follow_peer_losses(first, ends, failures));
    }
    let missing = missing_ranks_cause(ends, failures, first);
    Some(missing.unwrap_or_else(|| FailureCause::Worker(first.clone())))
}

/// Follows reports of lost peers, at most once per worker, to a worker that exited by itself, or to
/// one that gave up and was about to exit when remuda stopped it: then the ranks for which it had waited.
fn follow_peer_losses(first: &WorkerEnd, ends: &[WorkerEnd], failures: &Failures) -> FailureCause {
    let worker = |end: &WorkerEnd| FailureCause::Worker(end.clone());
    let mut end = first;
    for _ in 0..ends.len() {
        let mut blamed = failures.peer_losses.iter();
        let Some((_, peer)) = blamed.find(|(reporter, _)| *reporter == end.rank) else {
            break;
        };
        match ends.iter().find(|other| other.rank == *peer && !other.exit.is_success()) {
            Some(other) if other.rank == first.rank => break,
            Some(other) if other.is_killed_by_remuda() => {
                let has_waited = class_of(other.rank, failures) == Some(FailureClass::TimedOut);
                let missing = has_waited.then(|| missing_ranks_cause(ends, failures, first));
                let gave_up = FailureCause::GaveUp { rank: other.rank, detector: end.clone() };
                return missing.flatten().unwrap_or(gave_up);
            }
            Some(other) => end = other,
            // The peer exited with 0 before it took part: the ranks that left are the cause.
            None => return missing_ranks_cause(ends, failures, first).unwrap_or(worker(end)),
        }
    }
    let has_waited = class_of(end.rank, failures) == Some(FailureClass::TimedOut);
    let missing = has_waited.then(|| missing_ranks_cause(ends, failures, first));
    missing.flatten().unwrap_or(worker(end))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::base::{NodeRank, WorkerExit, clock};

    fn end(rank: u32, exit: WorkerExit, at_ms: u64, sent: &[i32], start: Instant) -> WorkerEnd {
        let at = start + Duration::from_millis(at_ms);
        WorkerEnd { rank: Rank(rank), exit, at, signals_sent: sent.to_vec() }
    }

    fn signal(signal: i32) -> WorkerExit {
        WorkerExit::Signal { signal, core: false }
    }

    #[track_caller]
    fn check(ends: &[WorkerEnd], rank: u32) {
        check_blaming(ends, &[], rank);
    }

    #[track_caller]
    fn check_blaming(ends: &[WorkerEnd], blamed: &[(u32, u32)], rank: u32) {
        let blamed = blamed.iter().map(|(reporter, peer)| (Rank(*reporter), Rank(*peer))).collect();
        match find(ends, &Failures { peer_losses: blamed, ..Failures::default() }) {
            Some(FailureCause::Worker(end)) => assert_eq!(end.rank, Rank(rank)),
            other => panic!("expected rank {rank}, found {other:?}"),
        }
    }

    fn lost(node: u32, loss: NodeLoss, at: Instant) -> LostNode {
        LostNode { node: NodeRank(node), loss, at, since: at }
    }

    #[test]
    fn node_silent_before_the_stop_precedes_a_frozen_shim() {
        let now = clock::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        // The shim of node 0 is found frozen when the job is stopped, which began at 8 s.
        let check = |since, node, loss| {
            let silent = lost(1, NodeLoss::LeaseExpired, at(40));
            let nodes = vec![
                lost(0, NodeLoss::ShimNotResponding, at(18)),
                LostNode { since: at(since), ..silent },
            ];
            let failures = Failures { nodes, stopped_at: Some(at(8)), ..Failures::default() };
            assert_eq!(
                find(&[], &failures),
                Some(FailureCause::Node { node: NodeRank(node), loss })
            );
        };
        check(3, 1, NodeLoss::LeaseExpired);
        check(10, 0, NodeLoss::ShimNotResponding);
    }

    #[test]
    fn silent_node_precedes_a_worker_killed_during_the_stop() {
        let now = clock::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        // Rank 0 lost a peer on node 1, and the job was stopped; rank 2 was killed from outside meanwhile.
        let ends =
            [end(0, WorkerExit::Code(1), 8000, &[], now), end(2, signal(9), 9000, &[15], now)];
        let check = |since, expected: &dyn Fn(&FailureCause) -> bool| {
            let silent = lost(1, NodeLoss::LeaseExpired, at(40));
            let nodes = vec![LostNode { since: at(since), ..silent }];
            let lost_peer = Evidence::printed(FailureClass::LostPeer, at(8));
            let evidence = [(Rank(0), lost_peer)].into();
            let stopped_at = Some(at(8));
            let failures = Failures { nodes, evidence, stopped_at, ..Failures::default() };
            let cause = find(&ends, &failures).expect("a cause");
            assert!(expected(&cause), "{cause:?}");
        };
        check(3, &|cause| matches!(cause, FailureCause::Node { node: NodeRank(1), .. }));
        check(20, &|cause| matches!(cause, FailureCause::Worker(end) if end.rank == Rank(2)));
    }

    #[test]
    fn node_lost_while_the_job_is_stopped_is_not_the_cause() {
        let now = clock::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let silent = |node, loss, since, noticed| LostNode {
            since: at(since),
            ..lost(node, loss, at(noticed))
        };
        let check = |nodes, node, loss| {
            let failures = Failures { nodes, stopped_at: Some(at(6)), ..Failures::default() };
            let cause = FailureCause::Node { node: NodeRank(node), loss };
            assert_eq!(find(&[], &failures), Some(cause));
        };
        // Node 1 had vanished before, which was noticed only when its lease expired.
        let late = lost(0, NodeLoss::ShimExited, at(11));
        let nodes = vec![late, silent(1, NodeLoss::LeaseExpired, 5, 30)];
        check(nodes, 1, NodeLoss::LeaseExpired);
        // The agent of node 0 was suspended when its shim exited; node 1 vanished later.
        let reported = silent(0, NodeLoss::ShimExited, 3, 11);
        let nodes = vec![reported, silent(1, NodeLoss::LeaseExpired, 5, 30)];
        check(nodes, 0, NodeLoss::ShimExited);
        let nodes = vec![lost(1, NodeLoss::Evicted, at(7)), lost(1, NodeLoss::ShimExited, at(8))];
        check(nodes, 1, NodeLoss::ShimExited);
    }

    #[test]
    fn earliest_failure_is_the_cause() {
        let now = clock::now();
        check(
            &[end(2, WorkerExit::Code(1), 5, &[], now), end(0, WorkerExit::Code(3), 2, &[], now)],
            0,
        );
    }

    #[test]
    fn foreign_signal_outranks_earlier_exit_code() {
        let now = clock::now();
        check(&[end(2, WorkerExit::Code(1), 1, &[], now), end(0, signal(9), 9, &[15], now)], 0);
    }

    #[test]
    fn late_crash_is_not_the_cause() {
        let now = clock::now();
        check(&[end(0, WorkerExit::Code(3), 1, &[], now), end(1, signal(11), 202, &[15], now)], 0);
        check(&[end(0, WorkerExit::Code(3), 1, &[], now), end(1, signal(11), 201, &[15], now)], 1);
    }

    #[test]
    fn worker_stopped_by_remuda_is_never_the_cause() {
        let now = clock::now();
        check(&[end(1, signal(15), 1, &[15], now), end(2, WorkerExit::Code(7), 2, &[], now)], 2);
        check(
            &[
                end(1, WorkerExit::Code(143), 1, &[15], now),
                end(2, WorkerExit::Code(7), 2, &[], now),
            ],
            2,
        );
    }

    #[test]
    fn peer_loss_report_points_to_the_peer() {
        let now = clock::now();
        let ends =
            [end(1, WorkerExit::Code(1), 1, &[], now), end(3, WorkerExit::Code(5), 8, &[], now)];
        check_blaming(&ends, &[(1, 3)], 3);
    }

    #[test]
    fn worker_that_gave_up_is_named_with_detector_status() {
        let now = clock::now();
        let ends = [end(1, WorkerExit::Code(3), 1, &[], now), end(2, signal(15), 9, &[15], now)];
        let blamed = vec![(Rank(1), Rank(2))];
        let cause =
            find(&ends, &Failures { peer_losses: blamed, ..Failures::default() }).expect("a cause");
        assert!(
            matches!(&cause, FailureCause::GaveUp { rank: Rank(2), detector } if detector.rank == Rank(1))
        );
        assert_eq!(cause.status().code(), 3);
    }

    #[test]
    fn rank_for_which_a_worker_gave_up_is_named() {
        let now = clock::now();
        let ends = [
            end(0, WorkerExit::Code(1), 1, &[], now),
            end(1, signal(15), 9, &[15], now),
            end(2, signal(9), 9, &[15, 9], now),
        ];
        let gave_up = |rank| {
            let reason = format!("the deadline passed while waiting for rank {rank}, after 3 s");
            Evidence::of_note(&reason, now).expect("a time limit")
        };
        let find_with = |evidence: &[(Rank, Evidence)]| {
            let (blamed, evidence) = (vec![(Rank(0), Rank(1))], evidence.iter().cloned().collect());
            find(&ends, &Failures { peer_losses: blamed, evidence, ..Failures::default() })
        };
        let hung = find_with(&[(Rank(1), gave_up(2))]);
        assert!(
            matches!(hung, Some(FailureCause::MissingRanks { ranks, .. }) if ranks == [Rank(2)])
        );
        // They are disconnected from each other.
        let cut = find_with(&[(Rank(1), gave_up(2)), (Rank(2), gave_up(1))]);
        assert!(matches!(cut, Some(FailureCause::GaveUp { rank: Rank(1), .. })), "{cut:?}");
    }

    /// The rank that waited exits by itself, after one that it told; and a rank that exited with 0 early.
    #[test]
    fn ranks_of_remuda_that_left_or_hang_are_named() {
        let now = clock::now();
        let waited = "the deadline passed while waiting for rank 1, after 3 s";
        let lost = |text: &str| Evidence::of_output(text.as_bytes(), |_| now).expect("known");
        let missing = |ends: &[WorkerEnd], blamed: (u32, u32), evidence| {
            let peer_losses = vec![(Rank(blamed.0), Rank(blamed.1))];
            let failures = Failures { peer_losses, evidence, ..Failures::default() };
            match find(ends, &failures) {
                Some(FailureCause::MissingRanks { ranks, .. }) => ranks,
                other => panic!("{other:?}"),
            }
        };
        let ends = [
            end(0, WorkerExit::Code(1), 1, &[], now),
            end(2, WorkerExit::Code(1), 2, &[], now),
            end(1, signal(9), 9, &[15, 9], now),
        ];
        let evidence = BTreeMap::from([
            (Rank(0), lost(&format!("rank 2 failed first, in barrier: {waited}"))),
            (Rank(2), Evidence::of_note(waited, now).expect("a time limit")),
        ]);
        assert_eq!(missing(&ends, (0, 2), evidence), [Rank(1)]);
        let ends =
            [end(1, WorkerExit::Code(0), 1, &[], now), end(0, WorkerExit::Code(1), 2, &[], now)];
        let text = "rank 1 on host `n1` exited with 0 before it took part";
        assert_eq!(missing(&ends, (0, 1), BTreeMap::from([(Rank(0), lost(text))])), [Rank(1)]);
    }

    fn traceback(at: Instant, head: &str) -> Evidence {
        let text = format!("{head}Traceback (most recent call last):\n{head}ValueError: x\n");
        Evidence::of_output(text.as_bytes(), |_| at).expect("a traceback")
    }

    #[test]
    fn logged_traceback_does_not_outrank_a_lost_node() {
        let now = clock::now();
        let later = now + Duration::from_secs(30);
        let ends = [end(1, signal(15), 31_000, &[15], now)];
        let find_with = |head| {
            let evidence = BTreeMap::from([(Rank(1), traceback(now, head))]);
            let nodes = vec![lost(1, NodeLoss::LeaseExpired, later)];
            let stopped_at = Some(later);
            find(&ends, &Failures { nodes, evidence, stopped_at, ..Failures::default() })
        };
        assert!(matches!(find_with(""), Some(FailureCause::Node { .. })));
        let found = find_with("[rank1]: ");
        assert!(
            matches!(found, Some(FailureCause::Exiting { rank: Rank(1), first: None })),
            "{found:?}"
        );
        assert_eq!(found.expect("a cause").status().code(), 1);
    }

    #[test]
    fn old_traceback_of_a_stopped_worker_is_not_its_failure() {
        let now = clock::now();
        let lost = Evidence::of_output(b"RuntimeError: gloo Connection closed by peer", |_| now);
        let ends =
            [end(0, WorkerExit::Code(1), 90_000, &[], now), end(1, signal(15), 90_010, &[15], now)];
        for (stop_s, expect) in [(90, Rank(0)), (50, Rank(1))] {
            let stopped_at = Some(now + Duration::from_secs(stop_s));
            let evidence = BTreeMap::from([
                (Rank(0), lost.clone().expect("known")),
                (Rank(1), traceback(now, "")),
            ]);
            let cause = find(&ends, &Failures { evidence, stopped_at, ..Failures::default() });
            let rank = match cause.expect("a cause") {
                FailureCause::Worker(end) => end.rank,
                FailureCause::Exiting { rank, .. } => rank,
                other => panic!("{other:?}"),
            };
            assert_eq!(rank, expect);
        }
    }

    #[test]
    fn mutual_peer_loss_reports_do_not_loop() {
        let now = clock::now();
        let ends =
            [end(1, WorkerExit::Code(1), 1, &[], now), end(3, WorkerExit::Code(1), 2, &[], now)];
        check_blaming(&ends, &[(1, 3), (3, 1)], 3);
    }

    #[test]
    fn node_lost_late_is_not_the_cause() {
        let now = clock::now();
        let ends = [end(0, WorkerExit::Code(7), 0, &[], now)];
        let lost = |after_ms| {
            let at = now + Duration::from_millis(after_ms);
            let nodes = vec![lost(1, NodeLoss::LeaseExpired, at)];
            find(&ends, &Failures { nodes, ..Failures::default() })
        };
        assert!(matches!(lost(100), Some(FailureCause::Node { .. })));
        assert!(matches!(lost(1200), Some(FailureCause::Worker(end)) if end.rank == Rank(0)));
    }
}

//! Ranks for which the others waited until their timeout.

use crate::base::Rank;
use crate::job::cause::failure::{FailureCause, Failures, WorkerEnd};
use crate::job::cause::known_texts::FailureClass;

pub(super) fn class_of(rank: Rank, failures: &Failures) -> Option<FailureClass> {
    failures.evidence.get(&rank).map(|evidence| evidence.class)
}

/// Whether a worker reported the failure of another one.
pub(super) fn is_witness(class: Option<FailureClass>) -> bool {
    matches!(class, Some(FailureClass::LostPeer | FailureClass::TimedOut))
}

/// Whether a worker reported that it had waited until its timeout.
pub(super) fn has_timeouts(ends: &[WorkerEnd], failures: &Failures) -> bool {
    ends.iter().any(|end| class_of(end.rank, failures) == Some(FailureClass::TimedOut))
}

/// The cause if ranks are missing; `first` failed because of them.
pub(super) fn missing_ranks_cause(
    ends: &[WorkerEnd],
    failures: &Failures,
    first: &WorkerEnd,
) -> Option<FailureCause> {
    let (ranks, reported_class) = find_missing_ranks(ends, failures)?;
    Some(FailureCause::MissingRanks { ranks, reported_class, first: first.clone() })
}

/// Ranks for which the others waited until their timeout, or whose connections ended: the ranks that
/// are named, else those that had exited with 0 before the others, else those that still ran and reported
/// nothing.
fn find_missing_ranks(
    ends: &[WorkerEnd],
    failures: &Failures,
) -> Option<(Vec<Rank>, FailureClass)> {
    let class_of = |rank: Rank| class_of(rank, failures);
    let is_late = has_timeouts(ends, failures);
    let named = failures.evidence.values().flat_map(|evidence| evidence.missing.iter().copied());
    let mut named: Vec<Rank> =
        named.filter(|rank| ends.iter().any(|end| end.rank == *rank)).collect();
    named.sort_unstable();
    named.dedup();
    // Ranks that wait for each other are disconnected from each other.
    named.retain(|rank| class_of(*rank) != Some(FailureClass::TimedOut));
    if !named.is_empty() && named.len() < ends.len() {
        return Some((named, FailureClass::TimedOut));
    }
    let reported = if is_late { FailureClass::TimedOut } else { FailureClass::LostPeer };
    let witnesses = ends.iter().filter(|end| is_witness(class_of(end.rank))).count();
    // A rank that exited with 0 left the others before any of them was stopped.
    let has_left = |end: &&WorkerEnd| end.exit.is_success() && end.signals_sent.is_empty();
    let mut left: Vec<Rank> = ends.iter().filter(has_left).map(|end| end.rank).collect();
    left.sort_unstable();
    if !left.is_empty() && 0 < witnesses {
        return Some((left, reported));
    }
    let is_silent = |end: &&WorkerEnd| {
        let says_nothing = matches!(class_of(end.rank), None | Some(FailureClass::Stopped));
        says_nothing
            && !end.signals_sent.is_empty()
            && !end.is_killed_by_foreign_signal()
            && !end.is_lost()
    };
    let silent: Vec<Rank> = ends.iter().filter(is_silent).map(|end| end.rank).collect();
    // Many silent ranks were stopped before they could report anything: their silence is no
    // evidence. Neither is it if others have not ended, which may be the missing ones.
    let silent_max = if is_late { witnesses } else { 1 };
    let have_all_ended = failures.workers <= ends.len();
    let is_clear =
        !silent.is_empty() && silent.len() <= silent_max && 0 < witnesses && have_all_ended;
    is_clear.then(|| {
        let mut silent = silent;
        silent.sort_unstable();
        (silent, reported)
    })
}

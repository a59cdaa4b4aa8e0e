//! Ranks that called another operation than the others, by what workers of the runtime printed.

use std::collections::BTreeMap;

use crate::base::Rank;
use crate::job::cause::failure::{FailureCause, Failures, WorkerEnd};
use crate::job::cause::known_texts::FailureClass;

/// Two ranks that have called different operations, and how many others are known to have called each.
#[derive(Debug, PartialEq, Eq)]
struct DifferentCalls<'a> {
    /// Rank that printed the text, and its operation.
    reporter: (Rank, &'a str),
    calls: [Call<'a>; 2],
}

/// A call, the first rank that has made it, and the number of ranks that have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call<'a> {
    rank: Rank,
    ranks: u32,
    text: &'a str,
}

/// The cause if a worker has failed because another one called something else than most ranks: the latter, with what it
/// has reported itself.
pub(super) fn deviating_rank_cause(
    reporter: &WorkerEnd,
    ends: &[WorkerEnd],
    failures: &Failures,
) -> Option<FailureCause> {
    if reporter.is_killed_from_outside() {
        return None;
    }
    let text = |rank: &Rank| failures.evidence.get(rank)?.exception.as_deref();
    parse(text(&reporter.rank)?)?;
    let reports = failures.evidence.keys().filter_map(|rank| parse(text(rank)?));
    let deviating = deviating_ranks(&reports.collect::<Vec<_>>());
    let is_known = |end: &&WorkerEnd| {
        let class = failures.evidence.get(&end.rank).map(|evidence| evidence.class);
        deviating.contains(&end.rank) && !end.exit.is_success() && class == Some(FailureClass::Own)
    };
    let end = ends.iter().filter(is_known).min_by_key(|end| (end.at, end.rank))?;
    Some(if end.is_own_failure() {
        FailureCause::Worker(end.clone())
    } else {
        FailureCause::Exiting { rank: end.rank, first: Some(reporter.clone()) }
    })
}

/// The ranks that have not made the call that most ranks have made; none if no call has a majority.
fn deviating_ranks(reports: &[DifferentCalls<'_>]) -> Vec<Rank> {
    let mut call_of = BTreeMap::new();
    let mut counted: BTreeMap<&str, u32> = BTreeMap::new();
    for DifferentCalls { reporter: (rank, operation), calls } in reports {
        for call in calls {
            call_of.insert(call.rank, call.text);
            let most = counted.entry(call.text).or_default();
            *most = call.ranks.max(*most);
        }
        // A rank that learned of the difference from another has made that call which is of its operation.
        let is_own = |call: &&Call<'_>| call.text.split('(').next() == Some(*operation);
        let own: Vec<_> = calls.iter().filter(is_own).collect();
        if let [own] = own[..] {
            call_of.entry(*rank).or_insert(own.text);
        }
    }
    for (text, most) in &mut counted {
        *most = (*most).max(call_of.values().filter(|call| *call == text).count() as u32);
    }
    let all: u32 = counted.values().sum();
    let Some((usual, _)) = counted.into_iter().find(|(_, ranks)| all < 2 * ranks) else {
        return Vec::new();
    };
    call_of.into_iter().filter(|(_, call)| *call != usual).map(|(rank, _)| rank).collect()
}

/// `OPERATION (operation 2, 64 bytes) failed on rank 1: this rank and 2 others called CALL, but rank 2 called CALL`, or
/// `…: rank 0 failed first, in OPERATION: rank 0 and …`.
fn parse(text: &str) -> Option<DifferentCalls<'_>> {
    let line =
        text.lines().find(|line| line.contains(" called ") && line.contains(", but rank "))?;
    let (head, tail) = line.split_once(" failed on rank ")?;
    let (rank, calls) = tail.split_once(": ")?;
    let reporter = Rank(rank.parse().ok()?);
    let operation = head.split_once(" (operation ").map_or(head, |(before, _)| before);
    let operation = operation.rsplit(": ").next()?;
    let calls = match calls.split_once(" failed first, in ") {
        Some((_, told)) => told.split_once(": ")?.1,
        None => calls,
    };
    let (own, other) = calls.split_once(", but rank ")?;
    let other = other.split_once(" (round ").map_or(other, |(call, _)| call);
    let own = match own.strip_prefix("this rank") {
        Some(own) => call(reporter, own)?,
        None => numbered_call(own.strip_prefix("rank ")?)?,
    };
    Some(DifferentCalls { reporter: (reporter, operation), calls: [own, numbered_call(other)?] })
}

/// `2 and 1 other called CALL`
fn numbered_call(text: &str) -> Option<Call<'_>> {
    let (rank, tail) = text.split_at(text.find(' ')?);
    call(Rank(rank.parse().ok()?), tail)
}

/// ` and 1 other called CALL`
fn call(rank: Rank, tail: &str) -> Option<Call<'_>> {
    let (others, text) = tail.split_once(" called ")?;
    let others = match others.strip_prefix(" and ") {
        Some(others) => others.split(' ').next()?.parse::<u32>().ok()?,
        None => 0,
    };
    Some(Call { rank, ranks: others.saturating_add(1), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{WorkerExit, clock};
    use crate::job::cause::evidence::Evidence;

    const ALL_REDUCE: &str = "all_reduce (operation 2, 64 bytes) failed on rank";
    const BARRIER: &str = "barrier (operation 2, 0 bytes) failed on rank";

    fn deviating(texts: &[String]) -> Vec<u32> {
        let reports: Vec<_> = texts.iter().map(|text| parse(text).expect("calls differ")).collect();
        deviating_ranks(&reports).iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn rank_with_the_rare_call_deviates() {
        let own = |rank| {
            format!(
                "remuda.errors.Mismatch: {ALL_REDUCE} {rank}: this rank called all_reduce(16 × f32, sum), but rank 2 called barrier()"
            )
        };
        assert_eq!(deviating(&[own(0)]), [] as [u32; 0], "one against one");
        assert_eq!(deviating(&[own(0), own(1)]), [2]);
        let counted = own(0).replace("this rank", "this rank and 2 others");
        assert_eq!(deviating(&[counted]), [2]);
        let told = format!(
            "{ALL_REDUCE} 3: rank 0 failed first, in all_reduce: {}",
            own(0).split_once("0: this ").unwrap().1.replace("rank called", "rank 0 called")
        );
        assert_eq!(deviating(&[own(0), told]), [2]);
    }

    #[test]
    fn reporter_may_deviate_itself() {
        let text = format!(
            "{BARRIER} 2: this rank called barrier(), but rank 0 and 1 other called all_reduce(5 × f32, sum) (round 2 here, round 3 there)"
        );
        assert_eq!(deviating(&[text]), [2]);
        let even = format!(
            "{BARRIER} 2: this rank and 1 other called barrier(), but rank 0 and 1 other called broadcast(5 × f32, from rank 1)"
        );
        assert_eq!(deviating(&[even]), [] as [u32; 0]);
    }

    #[test]
    fn other_texts_have_no_calls() {
        for text in [
            "ValueError: a called b, but rank 3",
            "x failed on rank 1: this rank called",
            "",
            "x failed on rank 1: this rank called a(), but rank 99999999999 called b()",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn deviating_rank_is_the_cause_if_it_was_stopped_too() {
        let now = clock::now();
        let end = |rank, signals: &[i32]| WorkerEnd {
            rank: Rank(rank),
            exit: WorkerExit::Code(1),
            at: now,
            signals_sent: signals.to_vec(),
        };
        let ends = [end(0, &[]), end(2, &[15])];
        let text = |call: &str, op: &str, rank: u32| {
            Evidence::of_exception(&format!("Mismatch: {op} {rank}: {call}"), now)
        };
        let first = text(
            "this rank and 2 others called all_reduce(1 × u8, sum), but rank 2 called barrier()",
            ALL_REDUCE,
            0,
        );
        let own = text(
            "this rank called barrier(), but rank 0 and 2 others called all_reduce(1 × u8, sum)",
            BARRIER,
            2,
        );
        let cause = |evidence: &[(u32, &Evidence)]| {
            let evidence = evidence.iter().map(|(rank, it)| (Rank(*rank), (*it).clone())).collect();
            deviating_rank_cause(&ends[0], &ends, &Failures { evidence, ..Failures::default() })
        };
        assert_eq!(cause(&[(0, &first)]), None, "nothing is known of what rank 2 did");
        let expected = FailureCause::Exiting { rank: Rank(2), first: Some(ends[0].clone()) };
        assert_eq!(cause(&[(0, &first), (2, &own)]), Some(expected));
        let killed =
            WorkerEnd { exit: WorkerExit::Signal { signal: 9, core: false }, ..end(0, &[]) };
        let evidence = [(Rank(0), first), (Rank(2), own)].into();
        let failures = Failures { evidence, ..Failures::default() };
        assert_eq!(
            deviating_rank_cause(&killed, &ends, &failures),
            None,
            "it was killed for another reason"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(called |, but rank | failed on rank |: |[0-9]|.){0,40}") {
            if let Some(report) = parse(&text) {
                deviating_ranks(&[report]);
            }
        }
    }
}

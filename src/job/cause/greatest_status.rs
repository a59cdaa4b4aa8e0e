//! The cause where workers do not need each other.

use std::cmp::Reverse;

use crate::job::cause::failure::{FailureCause, Failures, LostNode, WorkerEnd};

/// The cause where workers do not need each other and no failure of a worker follows from another:
/// the greatest status, of equal ones that of the lowest rank or node, whatever the order of the
/// events. Workers that were lost with their node, or that remuda killed because of a loss, are not
/// its cause.
pub(crate) fn find_greatest_status(
    ends: &[WorkerEnd],
    failures: &Failures,
) -> Option<FailureCause> {
    let nodes = failures.nodes.iter().map(|LostNode { node, loss, .. }| {
        (node.0, FailureCause::Node { node: *node, loss: loss.clone() })
    });
    let not_started = failures.unstarted.iter().map(|(_, rank, failure)| {
        (rank.0, FailureCause::NotStarted { rank: *rank, failure: *failure })
    });
    let is_reason = |end: &&WorkerEnd| {
        if failures.nodes.is_empty() { !end.exit.is_success() } else { end.is_own_failure() }
    };
    let failed = ends.iter().filter(is_reason);
    let failed = failed.map(|end| (end.rank.0, FailureCause::Worker(end.clone())));
    let all = nodes.chain(not_started).chain(failed);
    all.max_by_key(|(index, cause)| (cause.status().code(), Reverse(*index)))
        .map(|(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::{NodeRank, Rank, WorkerExit, clock};
    use crate::job::cause::failure::NodeLoss;

    fn end(rank: u32, exit: WorkerExit, at_ms: u64, sent: &[i32], start: Instant) -> WorkerEnd {
        let at = start + Duration::from_millis(at_ms);
        WorkerEnd { rank: Rank(rank), exit, at, signals_sent: sent.to_vec() }
    }

    #[test]
    fn greatest_status_counts_in_any_order() {
        let start = clock::now();
        let status = |codes: [(u32, u8); 3]| {
            let ends: Vec<WorkerEnd> = (0..)
                .zip(codes)
                .map(|(at, (rank, code))| end(rank, WorkerExit::Code(code), at * 1000, &[], start))
                .collect();
            find_greatest_status(&ends, &Failures::default()).map(|cause| match cause {
                FailureCause::Worker(end) => {
                    (end.rank.0, FailureCause::Worker(end).status().code())
                }
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(status([(0, 1), (1, 7), (2, 3)]), Some((1, 7)));
        assert_eq!(status([(2, 3), (1, 7), (0, 1)]), Some((1, 7)));
        assert_eq!(status([(2, 7), (1, 0), (0, 7)]), Some((0, 7)));
        assert_eq!(status([(0, 0), (1, 0), (2, 0)]), None);
    }

    #[test]
    fn lost_node_is_the_cause_of_what_its_workers_did() {
        let now = clock::now();
        let loss = |loss| {
            let lost = LostNode { node: NodeRank(0), loss, at: now, since: now };
            Failures { nodes: vec![lost], ..Failures::default() }
        };
        let is_node = |ends: &[WorkerEnd], failures: &Failures| {
            matches!(find_greatest_status(ends, failures), Some(FailureCause::Node { .. }))
        };
        let lost = [end(0, WorkerExit::Lost, 0, &[], now)];
        assert!(is_node(&lost, &loss(NodeLoss::LeaseExpired)));
        let killed = WorkerExit::Signal { signal: 9, core: false };
        let killed = [end(0, killed, 1, &[9], now)];
        assert!(is_node(&killed, &loss(NodeLoss::ShimExited)));
        let own = [killed[0].clone(), end(1, WorkerExit::Code(99), 9, &[], now)];
        assert!(!is_node(&own, &loss(NodeLoss::ShimExited)), "99 is greater than 75");
    }
}

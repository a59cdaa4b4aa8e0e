//! Nodes of a job whose number may vary: when they are connected to, asked and waited for. Pure.

use std::time::Duration;

use super::table::NodeTable;
use crate::base::NodeRank;
use crate::job::{ElasticNodes, JobState, MeetingPoint};
use crate::wire::FromAgent;

/// Time for which a job with too few nodes waits until lost ones can be reached again.
const RETURN_LIMIT: Duration = Duration::from_secs(600);

/// What follows if no link to a node could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// The node cannot take part.
    Refused,
    /// The node cannot take part; another one may join in its place.
    Replaced,
    /// The node is absent, and is connected to again later.
    Retried,
}

/// What follows if no link to a node could be made.
pub(crate) fn unreached(elastic: Option<ElasticNodes>) -> Unreached {
    match elastic.map(|elastic| elastic.meeting) {
        None => Unreached::Refused,
        Some(MeetingPoint::Node0) => Unreached::Replaced,
        Some(MeetingPoint::Launcher) => Unreached::Retried,
    }
}

/// Whether the other nodes are still waited for if this one cannot take part.
pub(crate) fn waits_for_others(elastic: Option<ElasticNodes>, node: NodeRank) -> bool {
    elastic.is_some_and(|elastic| elastic.meeting == MeetingPoint::Node0) && node != NodeRank(0)
}

/// Whether a node that has introduced itself is to be asked now: one that joins while workers run is asked for
/// the next epoch, and so are all if the present one waits until what lost nodes left is gone.
pub(crate) fn asks_at_hello(
    elastic: Option<ElasticNodes>,
    job: &JobState,
    table: &NodeTable,
    node: NodeRank,
) -> bool {
    let is_due = || job.is_asked(node) && !table.was_asked(node) && !table.is_epoch_deferred();
    elastic.is_none() || is_due()
}

/// Whether a message has no effect: a node without a part sent it before its number became vacant.
pub(crate) fn is_obsolete(job: &JobState, node: NodeRank, message: &FromAgent) -> bool {
    let is_answer =
        matches!(message, FromAgent::Ready(_) | FromAgent::Refused(_) | FromAgent::Idle { .. });
    is_answer && job.is_vacant(node)
}

/// How long nodes that are missing are still waited for. Before the first start, the launcher knows of every node that
/// it connects to whether it can be reached: no other attempt is waited for.
pub(crate) fn time_to_join(
    elastic: ElasticNodes,
    is_first: bool,
    (join_limit, waited): (Duration, Duration),
) -> Duration {
    let limit = match elastic.meeting {
        MeetingPoint::Launcher if is_first => Duration::ZERO,
        MeetingPoint::Launcher => RETURN_LIMIT,
        MeetingPoint::Node0 => join_limit,
    };
    limit.saturating_sub(waited)
}

/// The vacant numbers that a start misses, if it does, and no node is waited for any longer.
pub(crate) fn missed_nodes(
    job: &JobState,
    table: &NodeTable,
    time_to_join: Duration,
) -> Option<Vec<NodeRank>> {
    let missing = job.missing();
    if !job.is_preparing() || missing == 0 || !time_to_join.is_zero() {
        return None;
    }
    Some(table.all().filter(|node| job.is_vacant(*node)).take(missing).collect())
}

#[cfg(test)]
pub(in crate::launch::node) mod tests {
    use super::*;
    use crate::base::{Epoch, clock};
    use crate::job::{Event, Newcomers, OnEarlyLoss, OnFailure, OnTerm, Policy};
    use crate::launch::node::table::tests::{SECOND, table};

    pub(in crate::launch::node) fn elastic(meeting: MeetingPoint) -> ElasticNodes {
        ElasticNodes {
            min: 2,
            max: 3,
            meeting,
            last_call: SECOND,
            newcomers: Newcomers::AtOnce,
            excludes_failing: false,
            lanes: None,
        }
    }

    /// A job of three nodes with a worker each, whose number varies or is fixed.
    pub(in crate::launch::node) fn job(elastic: impl Into<Option<ElasticNodes>>) -> JobState {
        let policy = Policy {
            grace: SECOND,
            failure: OnFailure::StopAll,
            silence_max: 36 * SECOND,
            restarts_max: 0,
            first_pause: SECOND,
            warning: None,
            on_term: OnTerm::EndNode,
            early_loss: OnEarlyLoss::AwaitReplacement,
            has_evidence: false,
            elastic: elastic.into(),
        };
        JobState::new(policy, [0, 1, 2].map(NodeRank).to_vec())
    }

    #[test]
    fn unreached_node_is_refused_replaced_or_retried() {
        assert_eq!(unreached(None), Unreached::Refused);
        assert_eq!(unreached(Some(elastic(MeetingPoint::Node0))), Unreached::Replaced);
        assert_eq!(unreached(Some(elastic(MeetingPoint::Launcher))), Unreached::Retried);
    }

    #[test]
    fn refusal_of_a_node_that_has_joined_ends_no_wait() {
        let joined = Some(elastic(MeetingPoint::Node0));
        assert!(waits_for_others(joined, NodeRank(1)) && !waits_for_others(joined, NodeRank(0)));
        let called = Some(elastic(MeetingPoint::Launcher));
        assert!(!waits_for_others(called, NodeRank(1)) && !waits_for_others(None, NodeRank(1)));
    }

    #[test]
    fn node_that_joins_is_asked_once_and_not_in_a_deferred_epoch() {
        let (now, node) = (clock::now(), NodeRank(1));
        let (elastic, mut table) = (elastic(MeetingPoint::Node0), table(clock::now()));
        let mut job = job(elastic);
        assert!(!asks_at_hello(Some(elastic), &job, &table, node), "it has not joined");
        job.step(now, Event::Arrived(node));
        assert!(asks_at_hello(Some(elastic), &job, &table, node));
        table.hold_reconnects();
        table.defer_epoch(Vec::new());
        assert!(!asks_at_hello(Some(elastic), &job, &table, node), "the epoch asks it");
        table.allow_reconnects();
        table.on_asked(node, now);
        assert!(!asks_at_hello(Some(elastic), &job, &table, node), "once");
    }

    #[test]
    fn answers_of_a_node_whose_number_is_vacant_are_obsolete() {
        let job = job(elastic(MeetingPoint::Node0));
        let idle = FromAgent::Idle { unkillable: Vec::new() };
        for message in [FromAgent::Refused(Vec::new()), idle] {
            assert!(is_obsolete(&job, NodeRank(1), &message));
            assert!(!is_obsolete(&job, NodeRank(0), &message), "it is asked");
        }
        assert!(!is_obsolete(&job, NodeRank(1), &FromAgent::Heartbeat));
    }

    #[test]
    fn wait_for_lost_nodes_is_longer_than_that_of_the_first_start() {
        let left = |meeting, is_first, waited: u32| {
            time_to_join(elastic(meeting), is_first, (60 * SECOND, waited * SECOND))
        };
        assert_eq!(left(MeetingPoint::Node0, true, 20), 40 * SECOND);
        assert_eq!(left(MeetingPoint::Node0, false, 20), 40 * SECOND);
        assert_eq!(left(MeetingPoint::Launcher, true, 0), Duration::ZERO);
        assert_eq!(left(MeetingPoint::Launcher, false, 90), 510 * SECOND);
    }

    #[test]
    fn start_misses_vacant_numbers_once_no_node_is_waited_for() {
        let (elastic, table) = (elastic(MeetingPoint::Node0), table(clock::now()));
        let job = job(elastic);
        assert_eq!(job.epoch(), Epoch(0));
        assert_eq!(missed_nodes(&job, &table, SECOND), None);
        assert_eq!(missed_nodes(&job, &table, Duration::ZERO), Some(vec![NodeRank(1)]));
    }
}

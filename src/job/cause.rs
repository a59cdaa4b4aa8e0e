//! Which end was the first that was not our doing.

use std::time::{Duration, Instant};

use crate::base::{NodeRank, Rank, Status, WorkerExit};

/// Deaths within this time of the first failure compete for being its cause. What dies later dies
/// of being stopped, whatever signal it dies of.
const WINDOW: Duration = Duration::from_millis(200);

/// How a worker ended, with what is needed to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Which worker.
    pub rank: Rank,
    /// How.
    pub exit: WorkerExit,
    /// When, on the launcher's clock.
    pub at: Instant,
    /// Signals that we had sent it before.
    pub sent: Vec<i32>,
    /// The peer whose loss it reported before it ended.
    pub peer_lost: Option<Rank>,
}

impl End {
    /// A death by a signal that nobody of us sent: the strongest evidence there is.
    fn is_violent(&self) -> bool {
        matches!(self.exit, WorkerExit::Signal { signal, .. } if !self.sent.contains(&signal))
    }

    /// A failure that we did not bring about by stopping the job.
    pub(super) fn is_own_failure(&self) -> bool {
        match self.exit {
            WorkerExit::Code(0) | WorkerExit::Lost => false,
            WorkerExit::Code(_) | WorkerExit::Signal { .. } => {
                self.is_violent() || self.sent.is_empty()
            }
        }
    }
}

/// How a node was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLoss {
    /// Its link ended without a word; how the agent ended, where that can be known.
    LinkClosed(Option<WorkerExit>),
    /// Nothing was heard for the length of the lease.
    Silent,
    /// The shim died and took its workers along.
    ShimDied,
    /// It spoke a language that we do not know.
    Garbled(String),
}

/// Why the job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A worker.
    Worker(End),
    /// A worker that never became its program; `errno` says why.
    NotStarted {
        /// Which worker.
        rank: Rank,
        /// The kernel's reason.
        errno: i32,
    },
    /// A node.
    Node {
        /// Which.
        node: NodeRank,
        /// How.
        loss: NodeLoss,
    },
}

impl Cause {
    /// The exit status that tells this cause.
    pub fn status(&self) -> Status {
        const ENOENT: i32 = 2;
        match self {
            Self::Worker(End { exit: WorkerExit::Lost, .. }) => Status::LeaseLost,
            Self::Worker(end) => Status::Worker(end.exit.shell_status()),
            Self::NotStarted { errno: ENOENT, .. } => Status::NotFound,
            Self::NotStarted { .. } => Status::NotExecutable,
            Self::Node { loss, .. } => match loss {
                NodeLoss::ShimDied => Status::Worker(137),
                NodeLoss::LinkClosed(Some(exit))
                    if *exit == WorkerExit::Code(Status::Bug.code()) =>
                {
                    Status::Bug
                }
                NodeLoss::LinkClosed(_) | NodeLoss::Silent => Status::LeaseLost,
                NodeLoss::Garbled(_) => Status::Protocol,
            },
        }
    }
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The exit status.
    pub status: Status,
    /// The first failure, if there was one.
    pub cause: Option<Cause>,
    /// Workers other than the cause that failed without our doing.
    pub also_failed: usize,
    /// Workers other than the cause that ended because we stopped them.
    pub stopped: usize,
    /// Nodes that have not said that nothing is left.
    pub unconfirmed: Vec<NodeRank>,
}

/// Everything that went wrong, in the order in which it was heard.
#[derive(Default)]
pub(super) struct Failures {
    pub(super) nodes: Vec<(NodeRank, NodeLoss)>,
    pub(super) not_started: Vec<(Rank, i32)>,
}

/// Names the cause: a node that was lost or a violent death first, then whatever failed earliest;
/// an end that reported the loss of a peer points to that peer's end.
pub(super) fn find(ends: &[End], failures: &Failures) -> Option<Cause> {
    if let Some(&(rank, errno)) = failures.not_started.first() {
        return Some(Cause::NotStarted { rank, errno });
    }
    if let Some((node, loss)) = failures.nodes.first() {
        return Some(Cause::Node { node: *node, loss: loss.clone() });
    }
    let own = ends.iter().filter(|end| end.is_own_failure()).min_by_key(|end| end.at);
    let in_time = |end: &&End| own.is_some_and(|own| end.at <= own.at + WINDOW);
    let violent =
        ends.iter().filter(|end| end.is_violent()).filter(in_time).min_by_key(|end| end.at);
    let first = violent.or(own).or_else(|| {
        // Everybody failed only after our signal: the earliest still tells most.
        ends.iter().filter(|end| !end.exit.is_success()).min_by_key(|end| end.at)
    })?;
    Some(Cause::Worker(blame(first, ends).clone()))
}

/// Follows reports of lost peers, at most once per worker.
fn blame<'a>(first: &'a End, ends: &'a [End]) -> &'a End {
    let mut end = first;
    for _ in 0..ends.len() {
        let Some(peer) = end.peer_lost else { break };
        match ends.iter().find(|other| other.rank == peer && !other.exit.is_success()) {
            Some(other) if other.rank != first.rank => end = other,
            _ => break,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock;

    fn end(rank: u32, exit: WorkerExit, at_ms: u64, sent: &[i32], start: Instant) -> End {
        let at = start + Duration::from_millis(at_ms);
        End { rank: Rank(rank), exit, at, sent: sent.to_vec(), peer_lost: None }
    }

    fn signal(signal: i32) -> WorkerExit {
        WorkerExit::Signal { signal, core: false }
    }

    #[track_caller]
    fn check(ends: &[End], rank: u32) {
        match find(ends, &Failures::default()) {
            Some(Cause::Worker(end)) => assert_eq!(end.rank, Rank(rank)),
            other => panic!("expected rank {rank}, found {other:?}"),
        }
    }

    #[test]
    fn the_earliest_failure_is_the_cause() {
        let now = clock::now();
        check(
            &[end(2, WorkerExit::Code(1), 5, &[], now), end(0, WorkerExit::Code(3), 2, &[], now)],
            0,
        );
    }

    #[test]
    fn a_death_by_a_foreign_signal_outranks_an_earlier_exit() {
        let now = clock::now();
        check(&[end(2, WorkerExit::Code(1), 1, &[], now), end(0, signal(9), 9, &[15], now)], 0);
    }

    #[test]
    fn a_crash_long_after_the_first_failure_is_not_its_cause() {
        let now = clock::now();
        check(&[end(0, WorkerExit::Code(3), 1, &[], now), end(1, signal(11), 202, &[15], now)], 0);
        check(&[end(0, WorkerExit::Code(3), 1, &[], now), end(1, signal(11), 201, &[15], now)], 1);
    }

    #[test]
    fn whom_we_stopped_is_never_the_cause() {
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
    fn a_report_of_a_lost_peer_points_to_the_peer() {
        let now = clock::now();
        let mut reporter = end(1, WorkerExit::Code(1), 1, &[], now);
        reporter.peer_lost = Some(Rank(3));
        check(&[reporter, end(3, WorkerExit::Code(5), 8, &[], now)], 3);
    }

    #[test]
    fn peers_that_blame_each_other_do_not_loop() {
        let now = clock::now();
        let mut a = end(1, WorkerExit::Code(1), 1, &[], now);
        let mut b = end(3, WorkerExit::Code(1), 2, &[], now);
        (a.peer_lost, b.peer_lost) = (Some(Rank(3)), Some(Rank(1)));
        check(&[a, b], 3);
    }
}

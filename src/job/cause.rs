//! Which end was the first that was not our doing.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::stopping::SIGTERM;
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
}

impl End {
    /// A death by a signal that nobody of us sent: the strongest evidence there is.
    fn is_violent(&self) -> bool {
        matches!(self.exit, WorkerExit::Signal { signal, .. } if !self.sent.contains(&signal))
    }

    /// A death by a signal that we sent.
    fn is_of_our_making(&self) -> bool {
        matches!(self.exit, WorkerExit::Signal { signal, .. } if self.sent.contains(&signal))
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
    /// The shim did not answer for the length of the lease and was killed with its workers.
    ShimFrozen,
    /// It spoke a language that we do not know.
    Garbled(String),
    /// It was asked to end by SIGTERM.
    Leaves,
}

impl NodeLoss {
    /// Whether all of it is gone, as far as is known: neither a fault of what we run there, which it
    /// would show again, nor a wish.
    pub(super) fn is_of_whole_node(&self) -> bool {
        match self {
            Self::LinkClosed(None) | Self::Silent => true,
            Self::LinkClosed(Some(_))
            | Self::ShimDied
            | Self::ShimFrozen
            | Self::Garbled(_)
            | Self::Leaves => false,
        }
    }

    /// Whether the agent lives on without a shim.
    pub(super) fn is_of_shim(&self) -> bool {
        matches!(self, Self::ShimDied | Self::ShimFrozen)
    }
}

/// Why a worker did not become its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// How far it came.
    pub step: StartStep,
    /// The kernel's reason.
    pub errno: i32,
}

/// The steps of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    /// Pipes, and the process itself.
    Fork,
    /// Session and descriptors.
    Setup,
    /// The working directory.
    Chdir,
    /// The program.
    Exec,
}

impl StartFailure {
    fn status(self) -> Status {
        const ENOENT: i32 = 2;
        match self.step {
            StartStep::Fork | StartStep::Setup => Status::OsLimit,
            StartStep::Chdir => Status::NoInput,
            StartStep::Exec if self.errno == ENOENT => Status::NotFound,
            StartStep::Exec => Status::NotExecutable,
        }
    }
}

/// Why the job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A worker.
    Worker(End),
    /// A worker that gave up on its peers, which ended first: it was stopped before it ended by itself.
    GaveUp {
        /// Which.
        rank: Rank,
        /// The end of a peer that had heard of it.
        told: End,
    },
    /// A worker that never became its program.
    NotStarted {
        /// Which worker.
        rank: Rank,
        /// At which step, and why.
        failure: StartFailure,
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
        match self {
            Self::Worker(End { exit: WorkerExit::Lost, .. }) => Status::LeaseLost,
            Self::Worker(end) | Self::GaveUp { told: end, .. } => {
                Status::Worker(end.exit.shell_status())
            }
            Self::NotStarted { failure, .. } => failure.status(),
            Self::Node { loss, .. } => match loss {
                NodeLoss::LinkClosed(Some(exit))
                    if *exit == WorkerExit::Code(Status::Bug.code()) =>
                {
                    Status::Bug
                }
                NodeLoss::LinkClosed(Some(exit))
                    if *exit == WorkerExit::Code(Status::Protocol.code()) =>
                {
                    Status::Protocol
                }
                NodeLoss::LinkClosed(_)
                | NodeLoss::Silent
                | NodeLoss::ShimDied
                | NodeLoss::ShimFrozen => Status::LeaseLost,
                NodeLoss::Garbled(_) => Status::Protocol,
                NodeLoss::Leaves => Status::Interrupted(SIGTERM),
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
    /// Nodes other than the cause that were lost.
    pub also_lost: Vec<NodeRank>,
    /// Workers other than the cause that failed without our doing.
    pub also_failed: usize,
    /// Workers other than the cause that ended because we stopped them.
    pub stopped: usize,
    /// Nodes that have not said that nothing is left.
    pub unconfirmed: Vec<NodeRank>,
}

/// Everything that went wrong beside the ends of workers.
#[derive(Default)]
pub(super) struct Failures {
    pub(super) nodes: Vec<(Instant, NodeRank, NodeLoss)>,
    pub(super) not_started: Vec<(Instant, Rank, StartFailure)>,
    /// Who reported the loss of whom.
    pub(super) blamed: Vec<(Rank, Rank)>,
}

/// Names the cause. Whatever came within [`WINDOW`] of the first failure competes: a worker that
/// never started, then a node that was lost, then a violent death, then the earliest failure; an end
/// that reported the loss of a peer points to that peer's end.
pub(super) fn find(ends: &[End], failures: &Failures) -> Option<Cause> {
    let own = ends.iter().filter(|end| end.is_own_failure()).min_by_key(|end| end.at);
    let lost = failures.nodes.iter().min_by_key(|(at, node, _)| (*at, *node));
    let not_started = failures.not_started.iter().min_by_key(|(at, ..)| *at);
    let times = [own.map(|end| end.at), lost.map(|(at, ..)| *at), not_started.map(|(at, ..)| *at)];
    let Some(first) = times.into_iter().flatten().min() else {
        // Everybody failed only after our signal: the earliest still tells most.
        let failed = ends.iter().filter(|end| !end.exit.is_success());
        return failed.min_by_key(|end| end.at).cloned().map(Cause::Worker);
    };
    let in_time = |at: Instant| at <= first + WINDOW;
    if let Some((_, rank, failure)) = not_started.filter(|(at, ..)| in_time(*at)) {
        return Some(Cause::NotStarted { rank: *rank, failure: *failure });
    }
    if let Some((_, node, loss)) = lost.filter(|(at, ..)| in_time(*at)) {
        return Some(Cause::Node { node: *node, loss: loss.clone() });
    }
    let violent = ends.iter().filter(|end| end.is_violent() && in_time(end.at));
    let end = violent.min_by_key(|end| end.at).or(own)?;
    Some(blame(end, ends, &failures.blamed))
}

/// Where workers do not need each other nothing is the cause of anything: the greatest status counts,
/// of equal ones that of the lowest rank or node, whatever the order in which they came.
pub(super) fn greatest(ends: &[End], failures: &Failures) -> Option<Cause> {
    let nodes = failures
        .nodes
        .iter()
        .map(|(_, node, loss)| (node.0, Cause::Node { node: *node, loss: loss.clone() }));
    let not_started = failures
        .not_started
        .iter()
        .map(|(_, rank, failure)| (rank.0, Cause::NotStarted { rank: *rank, failure: *failure }));
    let failed = ends.iter().filter(|end| !end.exit.is_success());
    let failed = failed.map(|end| (end.rank.0, Cause::Worker(end.clone())));
    let all = nodes.chain(not_started).chain(failed);
    all.max_by_key(|(index, cause)| (cause.status().code(), Reverse(*index)))
        .map(|(_, cause)| cause)
}

/// Follows reports of lost peers, at most once per worker, to who ended by itself, or to who gave up and
/// was still about to end when we stopped it.
fn blame(first: &End, ends: &[End], blamed: &[(Rank, Rank)]) -> Cause {
    let mut end = first;
    for _ in 0..ends.len() {
        let Some((_, peer)) = blamed.iter().find(|(reporter, _)| *reporter == end.rank) else {
            break;
        };
        match ends.iter().find(|other| other.rank == *peer && !other.exit.is_success()) {
            Some(other) if other.rank == first.rank => break,
            Some(other) if other.is_of_our_making() => {
                return Cause::GaveUp { rank: other.rank, told: end.clone() };
            }
            Some(other) => end = other,
            None => break,
        }
    }
    Cause::Worker(end.clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock;

    fn end(rank: u32, exit: WorkerExit, at_ms: u64, sent: &[i32], start: Instant) -> End {
        let at = start + Duration::from_millis(at_ms);
        End { rank: Rank(rank), exit, at, sent: sent.to_vec() }
    }

    fn signal(signal: i32) -> WorkerExit {
        WorkerExit::Signal { signal, core: false }
    }

    #[track_caller]
    fn check(ends: &[End], rank: u32) {
        check_blaming(ends, &[], rank);
    }

    #[track_caller]
    fn check_blaming(ends: &[End], blamed: &[(u32, u32)], rank: u32) {
        let blamed = blamed.iter().map(|(who, whom)| (Rank(*who), Rank(*whom))).collect();
        match find(ends, &Failures { blamed, ..Failures::default() }) {
            Some(Cause::Worker(end)) => assert_eq!(end.rank, Rank(rank)),
            other => panic!("expected rank {rank}, found {other:?}"),
        }
    }

    #[test]
    fn among_equals_the_greatest_status_counts_whoever_came_first() {
        let start = clock::now();
        let status = |codes: [(u32, u8); 3]| {
            let ends: Vec<End> = (0..)
                .zip(codes)
                .map(|(at, (rank, code))| end(rank, WorkerExit::Code(code), at * 1000, &[], start))
                .collect();
            greatest(&ends, &Failures::default()).map(|cause| match cause {
                Cause::Worker(end) => (end.rank.0, Cause::Worker(end).status().code()),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(status([(0, 1), (1, 7), (2, 3)]), Some((1, 7)));
        assert_eq!(status([(2, 3), (1, 7), (0, 1)]), Some((1, 7)));
        assert_eq!(status([(2, 7), (1, 0), (0, 7)]), Some((0, 7)));
        assert_eq!(status([(0, 0), (1, 0), (2, 0)]), None);
    }

    #[test]
    fn every_loss_of_a_node_has_its_status() {
        #[track_caller]
        fn check(loss: NodeLoss, status: u8) {
            assert_eq!(Cause::Node { node: NodeRank(0), loss }.status().code(), status);
        }
        check(NodeLoss::LinkClosed(None), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(0))), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Signal { signal: 9, core: false })), 75);
        check(NodeLoss::LinkClosed(Some(WorkerExit::Code(70))), 70);
        check(NodeLoss::Silent, 75);
        check(NodeLoss::ShimDied, 75);
        check(NodeLoss::ShimFrozen, 75);
        check(NodeLoss::Leaves, 143);
        check(NodeLoss::Garbled("a frame holds no known message".to_owned()), 76);
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
        let ends =
            [end(1, WorkerExit::Code(1), 1, &[], now), end(3, WorkerExit::Code(5), 8, &[], now)];
        check_blaming(&ends, &[(1, 3)], 3);
    }

    #[test]
    fn who_gave_up_and_was_stopped_is_named_with_the_status_of_who_told() {
        let now = clock::now();
        let ends = [end(1, WorkerExit::Code(3), 1, &[], now), end(2, signal(15), 9, &[15], now)];
        let blamed = vec![(Rank(1), Rank(2))];
        let cause = find(&ends, &Failures { blamed, ..Failures::default() }).expect("a cause");
        assert!(matches!(&cause, Cause::GaveUp { rank: Rank(2), told } if told.rank == Rank(1)));
        assert_eq!(cause.status().code(), 3);
    }

    #[test]
    fn peers_that_blame_each_other_do_not_loop() {
        let now = clock::now();
        let ends =
            [end(1, WorkerExit::Code(1), 1, &[], now), end(3, WorkerExit::Code(1), 2, &[], now)];
        check_blaming(&ends, &[(1, 3), (3, 1)], 3);
    }

    #[test]
    fn a_node_lost_long_after_the_first_failure_is_not_its_cause() {
        let now = clock::now();
        let ends = [end(0, WorkerExit::Code(7), 0, &[], now)];
        let lost = |after_ms| {
            let at = now + Duration::from_millis(after_ms);
            let nodes = vec![(at, NodeRank(1), NodeLoss::Silent)];
            find(&ends, &Failures { nodes, ..Failures::default() })
        };
        assert!(matches!(lost(100), Some(Cause::Node { .. })));
        assert!(matches!(lost(1200), Some(Cause::Worker(end)) if end.rank == Rank(0)));
    }

    #[test]
    fn why_a_worker_did_not_start_decides_the_status() {
        let status = |step, errno| {
            Cause::NotStarted { rank: Rank(0), failure: StartFailure { step, errno } }.status()
        };
        assert_eq!(status(StartStep::Fork, 11), Status::OsLimit);
        assert_eq!(status(StartStep::Chdir, 2), Status::NoInput);
        assert_eq!(status(StartStep::Exec, 2), Status::NotFound);
        assert_eq!(status(StartStep::Exec, 8), Status::NotExecutable);
    }
}

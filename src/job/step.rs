//! The policy of a job on one screen: [`Job::step`].

use std::time::{Duration, Instant};

use super::cause::{self, End, Failures, NodeLoss, StartFailure, Verdict};
use crate::base::{NodeRank, Rank, Status, WorkerExit};

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// A kill that is not confirmed after this time is given up and said so.
const UNDEAD_LIMIT: Duration = Duration::from_secs(10);

/// What a job is allowed to take.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Time between asking workers to stop and killing them.
    pub grace: Duration,
    /// What a failure means for the others.
    pub failure: OnFailure,
}

/// What a failure means for the other workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They are stopped.
    StopAll,
    /// They run on, and the verdict comes when all have ended.
    LetRun,
}

/// What may happen to a job.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node could start its workers.
    Ready(NodeRank),
    /// A node could not; its reasons are with whoever asked.
    Refused(NodeRank),
    /// A worker became its program.
    Started(Rank),
    /// A worker did not become its program.
    NotStarted {
        /// Which.
        rank: Rank,
        /// At which step, and why.
        failure: StartFailure,
    },
    /// A worker says that it lost a peer.
    PeerLost {
        /// Who says it.
        rank: Rank,
        /// Whom it lost.
        peer: Rank,
    },
    /// A worker ended.
    Exited(End),
    /// Nothing of the job is left on a node.
    Idle(NodeRank),
    /// A node was lost.
    NodeLost {
        /// Which.
        node: NodeRank,
        /// How.
        loss: NodeLoss,
    },
    /// The user sent a signal.
    Signal(i32),
    /// The time that the user allowed is over.
    TimedOut,
    /// The time asked for with [`Effect::Wake`] has come.
    Timer,
    /// Everybody, we included, has stood still so long (Ctrl-Z): this time does not count.
    StoodStill(Duration),
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start the workers of every node.
    Start,
    /// Signal every worker's process group.
    Signal(i32),
    /// Kill everything on every node.
    Kill,
    /// Send [`Event::Timer`] then; replaces an earlier wish.
    Wake(Instant),
    /// Tell the user why and how the job is being stopped.
    Stopping(StopReason),
    /// From now on show only this worker; the others go on in their files.
    ShowOnly(Rank),
    /// Tell the user that workers are being killed now.
    Killing,
}

/// Why a job is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A worker or a node failed.
    Failure,
    /// `--timeout` ran out.
    Timeout,
    /// The user sent a signal.
    Signal(i32),
}

/// One job, from the first answer of a node to the verdict.
pub struct Job {
    policy: Policy,
    node_of_rank: Vec<NodeRank>,
    nodes: Vec<Node>,
    ends: Vec<End>,
    ended: Vec<bool>,
    failures: Failures,
    /// Signals of the user so far.
    signals: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Asked,
    Ready,
    Refused,
    Running,
    Idle,
    Lost,
}

enum Phase {
    Preparing,
    Running,
    Stopping { reason: StopReason, stage: Stage },
    Done(Verdict),
}

/// How hard we have asked; a later stage outranks an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Interrupted { term_at: Instant, kill_at: Instant },
    Terminated { kill_at: Instant },
    Killed { give_up_at: Instant },
}

impl Job {
    /// A job whose nodes have been asked whether they can start.
    pub fn new(policy: Policy, node_of_rank: Vec<NodeRank>) -> Self {
        let ended = vec![false; node_of_rank.len()];
        let count = node_of_rank.iter().map(|node| node.index() + 1).max().unwrap_or(0);
        Self {
            policy,
            node_of_rank,
            nodes: vec![Node::Asked; count],
            ends: Vec::new(),
            ended,
            failures: Failures::default(),
            signals: 0,
            phase: Phase::Preparing,
        }
    }

    /// How the job ended, once it has.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.phase {
            Phase::Done(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// Whether the workers have been asked to stop.
    pub fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. } | Phase::Done(_))
    }

    /// Every end heard of so far.
    pub fn ends(&self) -> &[End] {
        &self.ends
    }

    /// Workers that have been started and not yet been lost, as far as is known.
    pub fn running(&self) -> usize {
        let lost = |node: &NodeRank| self.failures.nodes.iter().any(|(_, lost, _)| lost == node);
        let over = |rank: Rank| self.ended[rank.index()] || self.never_started(rank);
        let ranks = (0..).map(Rank).zip(&self.node_of_rank);
        ranks.filter(|(rank, node)| !over(*rank) && !lost(node)).count()
    }

    fn never_started(&self, rank: Rank) -> bool {
        self.failures.not_started.iter().any(|(_, other, _)| *other == rank)
    }

    /// The only place where the job changes.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        if self.verdict().is_some() {
            return Vec::new();
        }
        let mut effects = match event {
            Event::Ready(node) => self.node_answered(node, Node::Ready),
            Event::Refused(node) => self.node_answered(node, Node::Refused),
            Event::Started(_) => Vec::new(),
            Event::NotStarted { rank, failure } => self.not_started(now, rank, failure),
            Event::PeerLost { rank, peer } => self.peer_lost(rank, peer),
            Event::Exited(end) => self.exited(now, end),
            Event::Idle(node) => self.node_idle(now, node),
            Event::NodeLost { node, loss } => self.node_lost(now, node, loss),
            Event::Signal(signal) => self.signalled(now, signal),
            Event::TimedOut => self.timed_out(now),
            Event::Timer => self.escalate(now),
            Event::StoodStill(time) => self.put_off(time),
        };
        self.finish_if_over();
        effects.extend(self.next_wake().map(Effect::Wake));
        effects
    }

    fn node_answered(&mut self, node: NodeRank, answer: Node) -> Vec<Effect> {
        // An answer may have been on its way when the node was lost.
        if self.nodes[node.index()] == Node::Lost {
            return Vec::new();
        }
        assert_eq!(self.nodes[node.index()], Node::Asked, "a node answers once");
        self.nodes[node.index()] = answer;
        self.start_if_all_ready()
    }

    /// All or nothing: one node that cannot, and no worker starts anywhere.
    fn start_if_all_ready(&mut self) -> Vec<Effect> {
        let preparing = matches!(self.phase, Phase::Preparing);
        if !preparing || self.nodes.contains(&Node::Asked) {
            return Vec::new();
        }
        if self.nodes.iter().all(|node| *node == Node::Ready) {
            self.nodes.fill(Node::Running);
            self.phase = Phase::Running;
            return vec![Effect::Start];
        }
        let status =
            if self.failures.nodes.is_empty() { Status::Config } else { Status::LeaseLost };
        let cause = cause::find(&self.ends, &self.failures);
        let status = cause.as_ref().map_or(status, cause::Cause::status);
        self.phase = Phase::Done(Verdict {
            status,
            cause,
            also_failed: 0,
            stopped: 0,
            unconfirmed: Vec::new(),
        });
        Vec::new()
    }

    fn not_started(&mut self, now: Instant, rank: Rank, failure: StartFailure) -> Vec<Effect> {
        if self.ended[rank.index()] {
            return Vec::new();
        }
        self.failures.not_started.push((now, rank, failure));
        self.fail(now)
    }

    fn fail(&mut self, now: Instant) -> Vec<Effect> {
        match self.policy.failure {
            OnFailure::StopAll => self.stop(now, StopReason::Failure, SIGTERM),
            OnFailure::LetRun => Vec::new(),
        }
    }

    fn peer_lost(&mut self, rank: Rank, peer: Rank) -> Vec<Effect> {
        self.failures.blamed.push((rank, peer));
        Vec::new()
    }

    fn exited(&mut self, now: Instant, end: End) -> Vec<Effect> {
        // The end of a worker of a lost node may have been on its way.
        if self.ended[end.rank.index()] {
            return Vec::new();
        }
        let (rank, failed) = (end.rank, !end.exit.is_success());
        self.ended[rank.index()] = true;
        self.ends.push(end);
        if !failed {
            return Vec::new();
        }
        let mut effects = self.fail(now);
        if !effects.is_empty() {
            effects.insert(0, Effect::ShowOnly(rank));
        }
        effects
    }

    /// A node has nothing left. Workers whose end it never told are lost: success needs every end.
    fn node_idle(&mut self, now: Instant, node: NodeRank) -> Vec<Effect> {
        if self.nodes[node.index()] != Node::Lost {
            self.nodes[node.index()] = Node::Idle;
            self.lose_workers_of(node, now);
        }
        Vec::new()
    }

    fn node_lost(&mut self, now: Instant, node: NodeRank, loss: NodeLoss) -> Vec<Effect> {
        let was = self.nodes[node.index()];
        if matches!(was, Node::Lost | Node::Idle) {
            return Vec::new();
        }
        // A shim's death is told by an agent that lives on and will say `Idle` itself, once there
        // is something that can be left.
        if loss != NodeLoss::ShimDied || matches!(self.phase, Phase::Preparing) {
            self.nodes[node.index()] = Node::Lost;
            self.lose_workers_of(node, now);
        }
        self.failures.nodes.push((now, node, loss));
        match self.phase {
            Phase::Preparing => self.start_if_all_ready(),
            _ => self.fail(now),
        }
    }

    fn lose_workers_of(&mut self, node: NodeRank, at: Instant) {
        for index in 0..self.node_of_rank.len() {
            let rank = Rank(index as u32);
            let known = self.ended[index] || self.never_started(rank);
            if self.node_of_rank[index] == node && !known {
                self.ended[index] = true;
                let (exit, sent) = (WorkerExit::Lost, Vec::new());
                self.ends.push(End { rank, exit, at, sent });
            }
        }
    }

    /// First signal: ask. Second: kill. Third: leave.
    fn signalled(&mut self, now: Instant, signal: i32) -> Vec<Effect> {
        self.signals += 1;
        match &self.phase {
            Phase::Preparing => {
                self.phase = Phase::Done(self.verdict_of(StopReason::Signal(signal)));
                Vec::new()
            }
            Phase::Running => self.stop(now, StopReason::Signal(signal), signal),
            // The job is being stopped already, but not because of the user.
            Phase::Stopping { stage, .. } if self.signals == 1 => match stage {
                Stage::Killed { .. } => Vec::new(),
                Stage::Interrupted { .. } | Stage::Terminated { .. } => {
                    vec![Effect::Stopping(StopReason::Signal(signal)), Effect::Signal(signal)]
                }
            },
            Phase::Stopping { stage, .. } if self.signals == 2 => match stage {
                Stage::Killed { .. } => Vec::new(),
                Stage::Interrupted { .. } | Stage::Terminated { .. } => self.kill(now),
            },
            Phase::Stopping { reason, .. } => {
                self.phase = Phase::Done(self.verdict_of(*reason));
                Vec::new()
            }
            Phase::Done(_) => Vec::new(),
        }
    }

    fn timed_out(&mut self, now: Instant) -> Vec<Effect> {
        if matches!(self.phase, Phase::Preparing) {
            self.phase = Phase::Done(self.verdict_of(StopReason::Timeout));
        }
        self.stop(now, StopReason::Timeout, SIGTERM)
    }

    /// Asks every worker to stop, once; later reasons change nothing.
    fn stop(&mut self, now: Instant, reason: StopReason, signal: i32) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Running) {
            return Vec::new();
        }
        let kill_at = now + self.policy.grace;
        let stage = if signal == SIGINT {
            Stage::Interrupted { term_at: now + self.policy.grace / 2, kill_at }
        } else {
            Stage::Terminated { kill_at }
        };
        self.phase = Phase::Stopping { reason, stage };
        vec![Effect::Stopping(reason), Effect::Signal(signal)]
    }

    fn escalate(&mut self, now: Instant) -> Vec<Effect> {
        let Phase::Stopping { reason, stage } = &mut self.phase else {
            return Vec::new();
        };
        match *stage {
            Stage::Interrupted { term_at, kill_at } if term_at <= now => {
                *stage = Stage::Terminated { kill_at };
                vec![Effect::Signal(SIGTERM)]
            }
            Stage::Terminated { kill_at } if kill_at <= now => self.kill(now),
            Stage::Killed { give_up_at } if give_up_at <= now => {
                let reason = *reason;
                self.phase = Phase::Done(self.verdict_of(reason));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn put_off(&mut self, time: Duration) -> Vec<Effect> {
        if let Phase::Stopping { stage, .. } = &mut self.phase {
            match stage {
                Stage::Interrupted { term_at, kill_at } => {
                    *term_at += time;
                    *kill_at += time;
                }
                Stage::Terminated { kill_at: at } | Stage::Killed { give_up_at: at } => *at += time,
            }
        }
        Vec::new()
    }

    fn kill(&mut self, now: Instant) -> Vec<Effect> {
        if let Phase::Stopping { stage, .. } = &mut self.phase {
            *stage = Stage::Killed { give_up_at: now + UNDEAD_LIMIT };
        }
        vec![Effect::Killing, Effect::Kill]
    }

    fn finish_if_over(&mut self) {
        if self.nodes.iter().any(|node| !matches!(node, Node::Idle | Node::Lost)) {
            return;
        }
        let verdict = match self.phase {
            Phase::Running => self.verdict_of(StopReason::Failure),
            Phase::Stopping { reason, .. } => self.verdict_of(reason),
            Phase::Preparing | Phase::Done(_) => return,
        };
        self.phase = Phase::Done(verdict);
    }

    fn verdict_of(&self, reason: StopReason) -> Verdict {
        let cause = match reason {
            StopReason::Failure => cause::find(&self.ends, &self.failures),
            StopReason::Timeout | StopReason::Signal(_) => None,
        };
        let status = match (reason, &cause) {
            (StopReason::Signal(signal), _) => Status::Interrupted(signal),
            (StopReason::Timeout, _) => Status::Timeout,
            (StopReason::Failure, Some(cause)) => cause.status(),
            (StopReason::Failure, None) => Status::Success,
        };
        let over =
            |node: &Node| matches!(node, Node::Idle | Node::Lost | Node::Asked | Node::Ready);
        let open = (0u32..).zip(&self.nodes).filter(|(_, node)| !over(node));
        let others = self.ends.iter().filter(|end| !self.is_cause(cause.as_ref(), end.rank));
        let (failed, others): (Vec<_>, Vec<_>) = others.partition(|end| end.is_own_failure());
        Verdict {
            status,
            also_failed: failed.len(),
            stopped: others.iter().filter(|end| !end.sent.is_empty()).count(),
            cause,
            unconfirmed: open.map(|(index, _)| NodeRank(index)).collect(),
        }
    }

    /// Whether a worker is the cause, or was lost with the node that is.
    fn is_cause(&self, cause: Option<&cause::Cause>, rank: Rank) -> bool {
        match cause {
            Some(cause::Cause::Worker(end)) => end.rank == rank,
            Some(cause::Cause::NotStarted { rank: failed, .. }) => *failed == rank,
            Some(cause::Cause::Node { node, .. }) => self.node_of_rank[rank.index()] == *node,
            None => false,
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self.phase {
            Phase::Stopping { stage, .. } => Some(match stage {
                Stage::Interrupted { term_at, .. } => term_at,
                Stage::Terminated { kill_at } => kill_at,
                Stage::Killed { give_up_at } => give_up_at,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;
    use crate::job::Cause;

    const GRACE: Duration = Duration::from_secs(10);

    /// A job of `nodes` nodes with two workers each.
    fn preparing(nodes: u32) -> Job {
        let node_of_rank = (0..nodes).flat_map(|node| [NodeRank(node); 2]).collect();
        Job::new(Policy { grace: GRACE, failure: OnFailure::StopAll }, node_of_rank)
    }

    fn running(nodes: u32) -> Job {
        let mut job = preparing(nodes);
        let now = clock::now();
        for node in 0..nodes {
            let effects = job.step(now, Event::Ready(NodeRank(node)));
            assert_eq!(effects.contains(&Effect::Start), node + 1 == nodes);
        }
        job
    }

    fn exit(rank: u32, exit: WorkerExit, at: Instant, sent: &[i32]) -> Event {
        Event::Exited(End { rank: Rank(rank), exit, at, sent: sent.to_vec() })
    }

    #[test]
    fn nothing_starts_unless_every_node_is_ready() {
        let mut job = preparing(2);
        let now = clock::now();
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert_eq!(job.step(now, Event::Refused(NodeRank(1))), []);
        assert_eq!(job.verdict().expect("over").status, Status::Config);
    }

    #[test]
    fn success_needs_every_worker_and_every_node() {
        let mut job = running(1);
        let now = clock::now();
        assert_eq!(job.step(now, exit(0, WorkerExit::Code(0), now, &[])), []);
        assert_eq!(job.step(now, exit(1, WorkerExit::Code(0), now, &[])), []);
        assert!(job.verdict().is_none(), "the node may still have leftovers");
        job.step(now, Event::Idle(NodeRank(0)));
        assert_eq!(job.verdict().expect("over").status, Status::Success);
    }

    #[test]
    fn the_first_failure_stops_all_and_its_code_is_the_exit_status() {
        let mut job = running(2);
        let now = clock::now();
        let effects = job.step(now, exit(3, WorkerExit::Code(7), now, &[]));
        assert_eq!(
            effects,
            [
                Effect::ShowOnly(Rank(3)),
                Effect::Stopping(StopReason::Failure),
                Effect::Signal(SIGTERM),
                Effect::Wake(now + GRACE)
            ]
        );
        let term = WorkerExit::Signal { signal: SIGTERM, core: false };
        for rank in 0..3 {
            job.step(now, exit(rank, term, now, &[SIGTERM]));
        }
        job.step(now, Event::Idle(NodeRank(0)));
        job.step(now, Event::Idle(NodeRank(1)));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Worker(7));
        assert_eq!(verdict.stopped, 3);
    }

    #[test]
    fn a_worker_that_ignores_term_is_killed_after_the_grace() {
        let mut job = running(1);
        let now = clock::now();
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        assert_eq!(job.step(now + GRACE / 2, Event::Timer), [Effect::Wake(now + GRACE)]);
        let effects = job.step(now + GRACE, Event::Timer);
        assert_eq!(effects[..2], [Effect::Killing, Effect::Kill]);
    }

    #[test]
    fn an_interrupt_becomes_term_at_half_the_grace() {
        let mut job = running(1);
        let now = clock::now();
        let effects = job.step(now, Event::Signal(SIGINT));
        assert_eq!(effects[1..], [Effect::Signal(SIGINT), Effect::Wake(now + GRACE / 2)]);
        let effects = job.step(now + GRACE / 2, Event::Timer);
        assert_eq!(effects, [Effect::Signal(SIGTERM), Effect::Wake(now + GRACE)]);
    }

    #[test]
    fn time_that_everybody_stood_still_is_no_part_of_the_grace() {
        let mut job = running(1);
        let now = clock::now();
        job.step(now, Event::Signal(SIGINT));
        let (pause, later) = (3 * GRACE, now + 3 * GRACE);
        let effects = job.step(later, Event::StoodStill(pause));
        assert_eq!(effects, [Effect::Wake(later + GRACE / 2)]);
        let effects = job.step(later + GRACE / 2, Event::Timer);
        assert_eq!(effects, [Effect::Signal(SIGTERM), Effect::Wake(later + GRACE)]);
        assert_eq!(running(1).step(now, Event::StoodStill(pause)), []);
    }

    #[test]
    fn a_second_signal_kills_and_a_third_leaves_naming_who_is_not_confirmed() {
        let mut job = running(2);
        let now = clock::now();
        job.step(now, Event::Signal(SIGINT));
        assert_eq!(job.step(now, Event::Signal(SIGINT))[..2], [Effect::Killing, Effect::Kill]);
        job.step(now, Event::Idle(NodeRank(0)));
        job.step(now, Event::Signal(SIGINT));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Interrupted(SIGINT));
        assert_eq!(verdict.unconfirmed, [NodeRank(1)]);
    }

    #[test]
    fn a_lost_node_stops_the_others_and_is_the_cause() {
        let mut job = running(2);
        let now = clock::now();
        let loss = NodeLoss::LinkClosed(None);
        job.step(now, Event::NodeLost { node: NodeRank(1), loss: loss.clone() });
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        job.step(now, exit(1, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, Event::Idle(NodeRank(0)));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.cause, Some(Cause::Node { node: NodeRank(1), loss }));
        assert_eq!(verdict.status, Status::LeaseLost);
    }

    #[test]
    fn a_shim_that_dies_before_the_start_starts_nothing() {
        let mut job = preparing(2);
        let now = clock::now();
        let loss = NodeLoss::ShimDied;
        job.step(now, Event::Ready(NodeRank(0)));
        job.step(now, Event::NodeLost { node: NodeRank(1), loss: loss.clone() });
        job.step(now, Event::Idle(NodeRank(1)));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.cause, Some(Cause::Node { node: NodeRank(1), loss }));
        job = preparing(2);
        job.step(now, Event::NodeLost { node: NodeRank(1), loss: NodeLoss::ShimDied });
        assert_eq!(job.step(now, Event::Ready(NodeRank(1))), [], "it was on its way");
        assert_eq!(job.step(now, Event::Ready(NodeRank(0))), []);
        assert!(job.verdict().is_some());
    }

    #[test]
    fn a_worker_whose_end_nobody_told_is_no_success() {
        let mut job = running(1);
        let now = clock::now();
        job.step(now, exit(0, WorkerExit::Code(0), now, &[]));
        job.step(now, Event::Idle(NodeRank(0)));
        assert_eq!(job.verdict().expect("over").status, Status::LeaseLost);
    }

    #[test]
    fn the_time_may_run_out_before_anything_starts() {
        let mut job = preparing(2);
        job.step(clock::now(), Event::TimedOut);
        assert_eq!(job.verdict().expect("over").status, Status::Timeout);
    }

    #[test]
    fn who_failed_too_and_who_was_stopped_are_counted_apart() {
        let mut job = running(2);
        let now = clock::now();
        job.step(now, exit(3, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(2, WorkerExit::Code(7), now, &[]));
        job.step(now, exit(1, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now, exit(0, WorkerExit::Code(0), now, &[SIGTERM]));
        job.step(now, Event::Idle(NodeRank(0)));
        job.step(now, Event::Idle(NodeRank(1)));
        let verdict = job.verdict().expect("over");
        assert_eq!((verdict.also_failed, verdict.stopped), (1, 2));
    }

    #[test]
    fn an_end_that_comes_after_the_loss_of_its_node_is_no_surprise() {
        let mut job = running(2);
        let now = clock::now();
        job.step(now, Event::NodeLost { node: NodeRank(0), loss: NodeLoss::Silent });
        job.step(now, exit(0, WorkerExit::Code(0), now, &[]));
        let failure = StartFailure { step: cause::StartStep::Exec, errno: 2 };
        job.step(now, Event::NotStarted { rank: Rank(1), failure });
        assert!(job.verdict().is_none(), "the other node still runs");
    }

    #[test]
    fn the_first_signal_during_a_stop_is_passed_on_and_the_second_kills() {
        let mut job = running(1);
        let now = clock::now();
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        let effects = job.step(now, Event::Signal(SIGINT));
        assert_eq!(
            effects[..2],
            [Effect::Stopping(StopReason::Signal(SIGINT)), Effect::Signal(SIGINT)]
        );
        assert_eq!(job.step(now, Event::Signal(SIGINT))[..2], [Effect::Killing, Effect::Kill]);
    }

    #[test]
    fn what_cannot_be_killed_does_not_hold_us_for_ever() {
        let mut job = running(1);
        let now = clock::now();
        job.step(now, Event::TimedOut);
        job.step(now + GRACE, Event::Timer);
        job.step(now + GRACE + UNDEAD_LIMIT, Event::Timer);
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Timeout);
        assert_eq!(verdict.unconfirmed, [NodeRank(0)]);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        /// Whatever order things happen in: exit 0 only if every worker returned 0, and a job
        /// whose nodes are all over is over.
        #[test]
        fn success_is_never_claimed_wrongly(
            codes in proptest::collection::vec(0u8..3, 4),
            order in proptest::sample::subsequence(vec![0u32, 1, 2, 3], 4),
            signal_at in proptest::option::of(0usize..4),
            lost in proptest::option::of(0u32..2),
        ) {
            let mut job = running(2);
            let now = clock::now();
            for (index, rank) in order.iter().enumerate() {
                if signal_at == Some(index) {
                    job.step(now, Event::Signal(SIGTERM));
                }
                job.step(now, exit(*rank, WorkerExit::Code(codes[*rank as usize]), now, &[]));
            }
            if let Some(node) = lost {
                job.step(now, Event::NodeLost { node: NodeRank(node), loss: NodeLoss::Silent });
            }
            job.step(now, Event::Idle(NodeRank(0)));
            job.step(now, Event::Idle(NodeRank(1)));
            let verdict = job.verdict().expect("every node is over");
            let clean = codes.iter().all(|code| *code == 0) && signal_at.is_none() && lost.is_none();
            proptest::prop_assert_eq!(verdict.status == Status::Success, clean);
        }
    }
}

//! What a seed stands for: the size of a job, its options, the habits of its workers, and faults.

use std::time::Duration;

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::network::Way;
use crate::job::{OnEarlyLoss, OnFailure, OnTerm, PAUSE_MIN, Policy, Warning};
use crate::launch::scale::proof::Random;

/// How the launcher reaches its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All agents are children of the launcher.
    Local,
    /// The launcher connects to every node.
    Ssh,
    /// The nodes connect; node 0 is the launcher's machine.
    Dial,
    /// A process manager starts a process on each node, which connects.
    Managed,
}

/// A run, before it begins.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) reach: Reach,
    /// Number of workers of each node.
    pub(super) workers: Vec<u32>,
    pub(super) policy: Policy,
    pub(super) timeout: Option<Micros>,
    pub(super) lease: Micros,
    pub(super) heartbeat: Micros,
    /// Time within which nodes that connect by themselves must have joined.
    pub(super) join_limit: Micros,
    /// Time limit of the checks before the start.
    pub(super) prepare_limit: Micros,
    /// Longest delay of the network, in one direction.
    pub(super) delay_max: Micros,
    /// Run time of a worker that nothing disturbs.
    pub(super) run_time: Micros,
    /// Whether the workers need each other: if one fails, those of all other nodes fail too.
    pub(super) is_group: bool,
    pub(super) habits: Vec<Habits>,
    pub(super) faults: Vec<InjectedFault>,
}

/// What a worker does when it is stopped, and what it leaves behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub(super) on_term: OnStop,
    /// Whether SIGKILL has no effect, because the kernel does not return.
    pub(super) is_unkillable: bool,
    pub(super) leftover: Option<LeftoverHabits>,
}

/// What a worker does after SIGTERM or SIGINT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnStop {
    IsKilled,
    ExitsWith { code: u8, after: Micros },
    IgnoresIt,
}

/// A process that a worker leaves behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftoverHabits {
    pub(super) ignores_term: bool,
    pub(super) holds_output: bool,
    /// How long it runs if it is not disturbed.
    pub(super) run_time: Micros,
}

/// Something that happens to the job from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct InjectedFault {
    pub(super) at: Micros,
    pub(super) kind: InjectedKind,
}

/// Kinds of faults. Nodes and ranks are numbered as in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedKind {
    WorkerExits { rank: usize, code: u8 },
    WorkerIsKilled { rank: usize, signal: i32 },
    CannotExecute { node: usize },
    Refuses { node: usize },
    AgentIsKilled { node: usize },
    ShimIsKilled { node: usize },
    AgentIsSuspended { node: usize, time: Micros },
    ShimIsSuspended { node: usize, time: Micros },
    NodeIsSuspended { node: usize, time: Micros },
    PowerFails { node: usize, back_after: Option<Micros> },
    LinkBreaks { node: usize },
    LinkIsCut { node: usize, time: Micros },
    OneWayIsCut { node: usize, way: Way, time: Micros },
    NodeIsLate { node: usize, time: Micros },
    DiskIsSlow { node: usize, time: Micros },
    LauncherDiskIsSlow { time: Micros },
    LauncherIsKilled,
    LauncherLosesPower,
    LauncherIsSuspended { time: Micros },
    JobIsSuspended { time: Micros },
    UserSignals { signal: i32 },
    NodeIsEvicted { node: usize },
    EverythingIsSuspended { time: Micros },
    LauncherIsReplaced { after: Micros },
    NodeKeepsFailing { node: usize },
    MemberIsKilled { node: usize },
    ManagerIsKilled,
}

impl InjectedKind {
    /// Number of kinds.
    pub(super) const COUNT: usize = 27;

    const NAMES: [&str; Self::COUNT] = [
        "a worker exits with a code",
        "a worker is killed",
        "a program cannot be executed",
        "a node refuses",
        "an agent is killed",
        "a shim is killed",
        "an agent is suspended",
        "a shim is suspended",
        "a node is suspended",
        "a node loses power",
        "a link breaks",
        "a link is cut",
        "one direction of a link is cut",
        "a node is late",
        "the disk of a node is slow",
        "the launcher's disk is slow",
        "the launcher is killed",
        "the launcher's machine loses power",
        "the launcher is suspended",
        "the user suspends the job",
        "the user sends a signal",
        "a node is evicted",
        "everything is suspended",
        "the launcher is killed and replaced",
        "the workers of a node keep failing",
        "the process that connects a node is killed",
        "a process manager is killed",
    ];

    /// Name of a kind, by its number.
    pub(super) fn name(number: usize) -> &'static str {
        Self::NAMES[number]
    }

    /// Number of the kind, for counts.
    pub(super) fn number(&self) -> usize {
        match self {
            Self::WorkerExits { .. } => 0,
            Self::WorkerIsKilled { .. } => 1,
            Self::CannotExecute { .. } => 2,
            Self::Refuses { .. } => 3,
            Self::AgentIsKilled { .. } => 4,
            Self::ShimIsKilled { .. } => 5,
            Self::AgentIsSuspended { .. } => 6,
            Self::ShimIsSuspended { .. } => 7,
            Self::NodeIsSuspended { .. } => 8,
            Self::PowerFails { .. } => 9,
            Self::LinkBreaks { .. } => 10,
            Self::LinkIsCut { .. } => 11,
            Self::OneWayIsCut { .. } => 12,
            Self::NodeIsLate { .. } => 13,
            Self::DiskIsSlow { .. } => 14,
            Self::LauncherDiskIsSlow { .. } => 15,
            Self::LauncherIsKilled => 16,
            Self::LauncherLosesPower => 17,
            Self::LauncherIsSuspended { .. } => 18,
            Self::JobIsSuspended { .. } => 19,
            Self::UserSignals { .. } => 20,
            Self::NodeIsEvicted { .. } => 21,
            Self::EverythingIsSuspended { .. } => 22,
            Self::LauncherIsReplaced { .. } => 23,
            Self::NodeKeepsFailing { .. } => 24,
            Self::MemberIsKilled { .. } => 25,
            Self::ManagerIsKilled => 26,
        }
    }
}

impl Scenario {
    /// Draws a scenario.
    pub(super) fn draw(random: &mut Random) -> Self {
        let reach = [Reach::Local, Reach::Ssh, Reach::Ssh, Reach::Dial][random.below(4)];
        // Most defects of distributed programs appear with three nodes; larger jobs are rarer.
        let nodes_max = [2, 3, 4, 8][random.below(4)];
        let nodes = 1 + random.below(nodes_max);
        let workers: Vec<u32> = (0..nodes).map(|_| 1 + random.below(4) as u32).collect();
        let ranks = workers.iter().sum::<u32>() as usize;
        let lease = [2, 5, 10, 30][random.below(4)] * SECOND;
        let heartbeat = crate::wire::heartbeat_interval(Duration::from_micros(lease));
        let heartbeat = heartbeat.as_micros() as Micros;
        let silence_max = Duration::from_micros(lease + 2 * heartbeat);
        let run_time_max = if random.one_in(8) { 200 } else { 40 };
        let run_time = random.between(SECOND, run_time_max * SECOND);
        let delay_max = [MS, 5 * MS, 50 * MS][random.below(3)];
        let habits = (0..ranks).map(|_| Habits::draw(random)).collect();
        let timeout = random.one_in(8).then(|| random.between(100 * MS, 60 * SECOND));
        let mut scenario = Self {
            reach,
            workers,
            policy: draw_policy(random, reach, silence_max),
            timeout,
            lease,
            heartbeat,
            join_limit: 60 * SECOND,
            prepare_limit: 60 * SECOND,
            delay_max,
            run_time,
            is_group: random.one_in(3),
            habits,
            faults: Vec::new(),
        };
        let count = [0, 1, 1, 1, 2, 2, 3, 4][random.below(8)];
        scenario.faults = (0..count).map(|_| scenario.draw_fault(random)).collect();
        scenario.faults.sort_by_key(|fault| fault.at);
        scenario
    }

    /// Lets a process manager start the agents instead of ssh, in one of three seeds whose number of nodes is fixed,
    /// and kills processes that connect nodes, in one of four seeds that have such processes.
    pub(super) fn vary_members(&mut self, random: &mut Random) {
        if self.reach == Reach::Ssh && self.policy.elastic.is_none() && random.one_in(3) {
            self.reach = Reach::Managed;
        }
        let kinds = match self.reach {
            Reach::Local | Reach::Ssh => return,
            Reach::Dial => 1,
            Reach::Managed => 2,
        };
        if !random.one_in(4) {
            return;
        }
        let kind = match random.below(kinds) {
            0 => InjectedKind::MemberIsKilled { node: random.below(self.workers.len()) },
            _ => InjectedKind::ManagerIsKilled,
        };
        let at = random.between(0, self.run_time.min(40 * SECOND) + 5 * SECOND);
        self.faults.push(InjectedFault { at, kind });
        self.faults.sort_by_key(|fault| fault.at);
    }
}

fn draw_policy(random: &mut Random, reach: Reach, silence_max: Duration) -> Policy {
    let is_dial = reach == Reach::Dial;
    let warning = Warning { signal: 10, ahead: Duration::from_secs(2) };
    Policy {
        elastic: None,
        grace: Duration::from_millis([200, 2_000, 10_000][random.below(3)]),
        failure: if random.one_in(6) { OnFailure::LetRun } else { OnFailure::StopAll },
        silence_max,
        restarts_max: [0, 0, 1, 2, 3][random.below(5)],
        first_pause: PAUSE_MIN,
        warning: random.one_in(6).then_some(warning),
        on_term: if is_dial && random.one_in(2) { OnTerm::EndNode } else { OnTerm::EndJob },
        early_loss: if is_dial { OnEarlyLoss::AwaitReplacement } else { OnEarlyLoss::EndJob },
        has_evidence: true,
    }
}

impl Habits {
    pub(super) fn draw(random: &mut Random) -> Self {
        let on_term = match random.below(8) {
            0 => OnStop::IgnoresIt,
            1..=3 => {
                let code = [0, 1, 143][random.below(3)];
                OnStop::ExitsWith { code, after: random.between(MS, 500 * MS) }
            }
            _ => OnStop::IsKilled,
        };
        let leftover = random.one_in(12).then(|| LeftoverHabits {
            ignores_term: random.one_in(3),
            holds_output: random.one_in(2),
            run_time: random.between(10 * MS, 20 * SECOND),
        });
        Self { on_term, is_unkillable: random.one_in(80), leftover }
    }
}

//! The simulated world: its machines and processes, and the loop that lets the next event happen.

use std::time::{Duration, Instant};

use super::clock::{Agenda, Micros, SECOND};
use super::draw::Draw;
use super::incidents::{Check, Truth};
use super::mistakes::Mistake;
use super::network::{SimulatedLink, Way};
use super::processes::{
    EndReason, SimulatedAgent, SimulatedHost, SimulatedLauncher, SimulatedWorker,
};
use super::scenario::Scenario;
use super::story::{Story, Teller};
use crate::base::{Epoch, NodeRank, WorkerExit, clock};
use crate::launch::scale::proof::Random;
use crate::wire::Stream;

/// No job of the simulation takes longer, and none needs as many events.
const TIME_MAX: Micros = 3_600 * SECOND;
const EVENTS_MAX: u64 = 500_000;
/// Marks the random numbers of elastic jobs, so that all other jobs have the same ones as without them.
const ELASTIC_DRAWS: u64 = 0xe1a5_71c0_0000_0000;
/// Marks those of the processes that connect nodes, for the same reason.
const MEMBER_DRAWS: u64 = 0x3a4a_9e12_0000_0000;

/// Everything of a run.
pub(super) struct Simulation {
    pub(super) agenda: Agenda<Happening>,
    pub(super) random: Random,
    pub(super) scenario: Scenario,
    pub(super) story: Story,
    pub(super) mistake: Option<Mistake>,
    pub(super) hosts: Vec<SimulatedHost>,
    pub(super) agents: Vec<SimulatedAgent>,
    pub(super) workers: Vec<SimulatedWorker>,
    pub(super) connections: Vec<SimulatedLink>,
    pub(super) launcher: SimulatedLauncher,
    pub(super) truth: Truth,
    pub(super) everything_suspended_since: Option<Micros>,
    /// The instant at which virtual time begins.
    pub(super) start: Instant,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    Arrives { connection: usize, way: Way },
    AgentRuns(usize),
    ShimRuns(usize),
    LauncherRuns,
    WorkerExits { worker: usize, exit: WorkerExit, reason: EndReason },
    LeftoverExits(usize),
    StreamEnds { worker: usize, stream: Stream, is_held_open: bool },
    LockIsChecked(usize),
    ChecksEnd { agent: usize, epoch: Epoch },
    EvidenceIsFound,
    SshConnects { node: NodeRank, link: u32 },
    SshTimesOut { node: NodeRank, link: u32 },
    HostDials(usize),
    ManagerStarts { node: NodeRank, link: u32 },
    JoinLimit { node: NodeRank, link: u32 },
    LinkIsReported { connection: usize },
    MemberKillsAgent(usize),
    Fault(usize),
    FaultEnds(FaultEnd),
    WorkerPrints { worker: usize, bytes: usize },
    OutputIsConsumed { connection: usize, bytes: u64 },
    LauncherExits,
    KeepaliveFails(usize),
}

/// The end of something that lasted.
#[derive(Clone, Copy, Debug)]
pub(super) enum FaultEnd {
    AgentResumes(usize),
    ShimResumes(usize),
    HostResumes(usize),
    LinkHeals { host: usize, ways: [bool; 2] },
    LauncherResumes { number: u32 },
    LauncherIsReplaced,
    JobResumes,
    EverythingResumes,
    PowerReturns(NodeRank),
    PodIsReplaced(NodeRank),
    PodEnds(usize),
}

impl Simulation {
    /// The world of a seed, before anything has happened.
    pub(super) fn new(seed: u64, mistake: Option<Mistake>, is_requested: bool) -> Self {
        let mut random = Random::new(seed);
        let mut scenario = Scenario::draw(&mut random);
        scenario.vary_nodes(&mut Random::new(seed ^ ELASTIC_DRAWS));
        scenario.vary_members(&mut Random::new(seed ^ MEMBER_DRAWS));
        let start = clock::now();
        let hosts = (0..scenario.workers.len() as u32).map(NodeRank);
        let hosts =
            hosts.map(|node| SimulatedHost::new(node, random.between(0, 1_000 * SECOND))).collect();
        Self {
            agenda: Agenda::new(),
            launcher: SimulatedLauncher::new(&scenario, mistake, start),
            random,
            story: Story::new(is_requested),
            mistake,
            hosts,
            agents: Vec::new(),
            workers: Vec::new(),
            connections: Vec::new(),
            truth: Truth::default(),
            scenario,
            everything_suspended_since: None,
            start,
        }
    }

    /// Lets everything happen, and checks it.
    pub(super) fn run(&mut self) {
        for index in 0..self.scenario.faults.len() {
            self.agenda.add(self.scenario.faults[index].at, Happening::Fault(index));
        }
        self.begin_launcher();
        while let Some(happening) = self.agenda.next() {
            self.happen(happening);
            if self.truth.violation.is_some() {
                return;
            }
            if TIME_MAX < self.agenda.now || EVENTS_MAX < self.agenda.count() {
                let now = self.agenda.now;
                self.truth.fail(Check::Liveness, || format!("not over after {} s", now / SECOND));
                return;
            }
        }
        self.check_end();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives { connection, way } => self.arrive(connection, way),
            Happening::AgentRuns(agent) => self.run_agent(agent),
            Happening::ShimRuns(agent) => self.run_shim(agent),
            Happening::LauncherRuns => self.run_launcher(),
            Happening::WorkerExits { worker, exit, reason } => {
                self.exit_worker(worker, exit, reason);
            }
            Happening::LeftoverExits(worker) => self.exit_leftover(worker),
            Happening::StreamEnds { worker, stream, is_held_open } => {
                self.end_stream(worker, stream, is_held_open);
            }
            Happening::LockIsChecked(agent) => self.check_lock(agent),
            Happening::ChecksEnd { agent, epoch } => self.end_checks(agent, epoch),
            Happening::EvidenceIsFound => self.find_evidence(),
            Happening::SshConnects { node, link } => self.connect_by_ssh(node, link),
            Happening::SshTimesOut { node, link } => self.report_unreachable(node, link, false),
            Happening::HostDials(host) => self.dial(host),
            Happening::ManagerStarts { node, link } => self.connect_by_manager(node, link),
            Happening::JoinLimit { node, link } => self.reach_join_limit(node, link),
            Happening::LinkIsReported { connection } => self.report_link_end(connection),
            Happening::MemberKillsAgent(agent) => self.end_agent_by_member(agent),
            Happening::Fault(index) => self.inject(index),
            Happening::FaultEnds(end) => self.end_fault(end),
            Happening::WorkerPrints { worker, bytes } => self.print(worker, bytes),
            Happening::OutputIsConsumed { connection, bytes } => {
                self.queue_consumed(connection, bytes);
            }
            Happening::LauncherExits => self.exit_launcher(),
            Happening::KeepaliveFails(connection) => self.end_by_keepalive(connection),
        }
    }

    pub(super) fn now(&self) -> Micros {
        self.agenda.now
    }

    /// The instant of a point in virtual time.
    pub(super) fn instant(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(at)
    }

    /// The point in virtual time of an instant.
    pub(super) fn micros(&self, at: Instant) -> Micros {
        at.saturating_duration_since(self.start).as_micros() as Micros
    }

    /// Adds an event that happens after this time.
    pub(super) fn after(&mut self, time: Micros, happening: Happening) {
        self.agenda.add(self.agenda.now + time, happening);
    }

    /// Adds an event that happens after a moment, in which others may happen.
    pub(super) fn soon(&mut self, happening: Happening) {
        let moment = self.random.between(10, 200);
        self.after(moment, happening);
    }

    /// Tells a line of the story.
    pub(super) fn tell(&mut self, teller: Teller, text: impl FnOnce() -> String) {
        self.story.tell(self.agenda.now, teller, text);
    }
}

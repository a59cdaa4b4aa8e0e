//! Tests with jobs of thousands of nodes: the real dispatcher, real links and real frames, with
//! simulated agents at the other ends. The test plan fixes what each agent will do, and so how the
//! job must end.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use self::proof::{Random, proof_cases};
use super::dispatcher::Dispatcher;
use super::options::{
    CauseRule, CommandOptions, ContinueWith, DeviceOptions, FailureOptions, Framing, GpuSharing,
    LimitOptions, Options, OutputOptions, StdinTo, SupervisorOptions, Transport,
};
use crate::base::{Epoch, HostName, JobId, NodeRank, Rank, Slot, Status, WorkerExit, clock};
use crate::job::{FailureCause, NodeLoss, PAUSE_MIN, Verdict};
use crate::launch::node::handle::Connector;
use crate::os::files::fds;
use crate::plan::{
    self, Accelerator, Conventions, JobSpec, LaunchPlan, MasterAddr, Program, RendezvousPort,
};
use crate::report::text::MessageLevel;
use crate::report::{Charset, LogRetention, StatusPlace, Style, Terminal, print_error};
use crate::secure::JobKey;
use crate::transport::{
    AgentEnd, AgentHandle, Link, LinkReader, LinkWriter, SessionInfo, WaitForEnd, split_socket,
};
use crate::wire::{
    self, AgentHello, Decoder, FromAgent, KernelReport, Listen, MasterEndpoint, PreparedNode,
    Problem, Start, Stream, ToAgent,
};

#[expect(dead_code, reason = "skips are for tests of the whole program")]
#[path = "../../tests/support/proof.rs"]
pub(crate) mod proof;

const SIZES: [u32; 6] = [8, 64, 512, 1024, 2048, 4096];
const WORKERS: u32 = 2;
/// File descriptors of a link, at both ends.
const FDS_PER_NODE: u64 = 2;

/// The exit of a worker that remuda did not stop, and its time in microseconds after the start.
type Failure = (WorkerExit, u64);

/// What the selected node does; workers of all others run until they are stopped, or exit with 0.
#[derive(Clone, Debug)]
enum Scenario {
    AllSucceed,
    /// Workers of one node fail; their exits are received in this order.
    Fail(Vec<(u32, Failure)>),
    /// The link ends while the node's workers run.
    LinkEnds,
    /// The node sends data that is no frame.
    Garbage,
    /// The node sends valid frames that no agent sends at that time.
    SendsInvalid(InvalidMessage),
    /// The node cannot take part.
    Refuses,
}

/// A wrong message on which the job would rely if it were accepted.
#[derive(Clone, Copy, Debug)]
enum InvalidMessage {
    /// The node answers twice whether it can start.
    AnswersTwice,
    /// The exit of a worker of another node, or of a worker that does not exist.
    ForeignEnd,
    /// Output of such a worker.
    ForeignOutput,
}

fn random_scenario(random: &mut Random) -> Scenario {
    match random.below(7) {
        0 => Scenario::AllSucceed,
        1 => Scenario::LinkEnds,
        2 => Scenario::Garbage,
        3 => Scenario::Refuses,
        4 => Scenario::SendsInvalid(
            [
                InvalidMessage::AnswersTwice,
                InvalidMessage::ForeignEnd,
                InvalidMessage::ForeignOutput,
            ][random.below(3)],
        ),
        _ => {
            let at = |random: &mut Random| 1 + random.below(1000) as u64;
            let (first, second) = (at(random), 1001 + at(random));
            let times = if random.below(2) == 0 { [first, second] } else { [second, first] };
            let failures = (0..WORKERS).zip(times).map(|(worker, at)| (worker, (exit(random), at)));
            let mut failures: Vec<_> = failures.collect();
            failures.truncate(1 + random.below(WORKERS as usize));
            Scenario::Fail(failures)
        }
    }
}

fn exit(random: &mut Random) -> WorkerExit {
    match random.below(2) {
        0 => WorkerExit::Code(1 + random.below(200) as u8),
        _ => WorkerExit::Signal { signal: [6, 9, 11][random.below(3)], core: false },
    }
}

/// Exits that agents have reported: the exit, and whether remuda had stopped the worker.
type ReportedExits = Arc<Mutex<BTreeMap<Rank, (WorkerExit, bool)>>>;

/// A simulated agent at its end of a link.
struct SimulatedAgent {
    reader: LinkReader,
    writer: LinkWriter,
    part: AgentScript,
}

/// Handle of a simulated agent, which is not a process.
struct NoProcess;

impl AgentHandle for NoProcess {
    fn wait_for_exit(self: Box<Self>, _limit: Duration) -> WaitForEnd {
        Box::pin(std::future::ready(AgentEnd::default()))
    }
}

/// Behaviour and state of a simulated agent.
struct AgentScript {
    /// `None`: an agent that follows the protocol.
    scenario: Option<Scenario>,
    /// Whether its workers exit with 0 by themselves.
    succeeds: bool,
    reported: ReportedExits,
    running: Vec<Rank>,
}

impl SimulatedAgent {
    async fn play(mut self) {
        let mut decoder = Decoder::default();
        loop {
            match decoder.message().expect("the launcher sends valid frames") {
                Some(ToAgent::Bye) => return,
                Some(message) => {
                    if !self.answer(message).await {
                        return;
                    }
                }
                None => match self.reader.read(decoder.room(4096)).await {
                    Ok(1..) => {}
                    _ => return,
                },
            }
        }
    }

    /// Handles a message; returns false at the end of the link.
    async fn answer(&mut self, message: ToAgent) -> bool {
        let bytes = match message {
            ToAgent::Hello(_) => frame(&FromAgent::Hello(AgentHello {
                version: wire::VERSION,
                build: "played".to_owned(),
                pid: 1,
                clock_us: clock::machine_us(),
            })),
            ToAgent::Prepare(prepare) => frame(&self.examine(prepare.listen.as_ref())),
            ToAgent::Start(start) => match self.start(&start) {
                Some(bytes) => bytes,
                None => return false,
            },
            ToAgent::Signal(signal) => self.stop(signal),
            ToAgent::Kill => self.stop(libc::SIGKILL),
            ToAgent::Heartbeat { at_us } => {
                frame(&FromAgent::Clock { sent_us: at_us, clock_us: clock::machine_us() })
            }
            _ => Vec::new(),
        };
        self.writer.write_all(&bytes, &[]).await.is_ok()
    }

    fn invalid_message(&self, kind: InvalidMessage) -> FromAgent {
        let rank = Rank(self.part.running.last().expect("they have been started").0 + 1);
        match kind {
            InvalidMessage::AnswersTwice => self.examine(None),
            InvalidMessage::ForeignEnd => {
                let exit = WorkerExit::Code(0);
                FromAgent::Exited {
                    rank,
                    exit,
                    at_us: 0,
                    signals_sent: Vec::new(),
                    kernel: KernelReport::default(),
                }
            }
            InvalidMessage::ForeignOutput => {
                let bytes = b"not mine\n".to_vec();
                FromAgent::Output { rank, stream: Stream::Stdout, bytes }
            }
        }
    }

    fn examine(&self, listen: Option<&Listen>) -> FromAgent {
        if matches!(self.part.scenario, Some(Scenario::Refuses)) {
            return FromAgent::Refused(vec![Problem::new(Status::Config, "no")]);
        }
        let addr = "127.0.0.1".to_owned();
        let store = listen.map(|_| (std::net::Ipv4Addr::LOCALHOST, 1).into());
        let master = listen.map(|_| MasterEndpoint { addr, port: 29500 });
        FromAgent::Ready(PreparedNode { master, store, cpus: 1, notes: Vec::new() })
    }

    fn start(&mut self, start: &Start) -> Option<Vec<u8>> {
        let at_us = clock::machine_us();
        let mut bytes = Vec::new();
        for worker in &start.workers {
            bytes.extend(frame(&FromAgent::Started { rank: worker.rank, pid: 1, at_us }));
            self.part.running.push(worker.rank);
        }
        match self.part.scenario.clone() {
            Some(Scenario::LinkEnds) => return None,
            Some(Scenario::Garbage) => bytes.extend([0xff; 64]),
            Some(Scenario::SendsInvalid(kind)) => bytes.extend(frame(&self.invalid_message(kind))),
            Some(Scenario::Fail(failures)) => {
                for (worker, (exit, after_us)) in failures {
                    let rank = start.workers[worker as usize].rank;
                    bytes.extend(self.end(rank, exit, at_us + after_us, Vec::new()));
                }
            }
            Some(Scenario::AllSucceed | Scenario::Refuses) | None => {}
        }
        if self.part.succeeds {
            for rank in self.part.running.clone() {
                bytes.extend(self.end(rank, WorkerExit::Code(0), at_us, Vec::new()));
            }
        }
        Some(bytes)
    }

    fn stop(&mut self, signal: i32) -> Vec<u8> {
        let exit = WorkerExit::Signal { signal, core: false };
        let now_us = clock::machine_us();
        let ends = self.part.running.clone().into_iter();
        ends.flat_map(|rank| self.end(rank, exit, now_us, vec![signal])).collect()
    }

    /// Encodes the exit of a worker; after the last one, the final message of the node follows.
    fn end(&mut self, rank: Rank, exit: WorkerExit, at_us: u64, sent: Vec<i32>) -> Vec<u8> {
        self.part.running.retain(|living| *living != rank);
        self.part
            .reported
            .lock()
            .expect("no panic while held")
            .insert(rank, (exit, !sent.is_empty()));
        let mut bytes = frame(&FromAgent::Exited {
            rank,
            exit,
            at_us,
            signals_sent: sent,
            kernel: KernelReport::default(),
        });
        if self.part.running.is_empty() {
            bytes.extend(frame(&FromAgent::Idle { unkillable: Vec::new() }));
        }
        bytes
    }
}

fn frame(message: &FromAgent) -> Vec<u8> {
    wire::encode(Epoch(0), message)
}

pub(in crate::launch) fn plan_of(nodes: u32) -> LaunchPlan {
    let host = |node| HostName::parse(&format!("node-{node:05}")).expect("a host name");
    let slots: Vec<_> = (0..WORKERS).map(Slot).collect();
    let spec = JobSpec {
        nodes: (0..nodes).map(|node| (host(node), slots.clone())).collect(),
        accelerator: Accelerator::Cpu,
        device_names: Vec::new(),
        program: Program::Exec { program: "true".into(), local_rank: false },
        args: Vec::new(),
        master_addr: MasterAddr::Given("127.0.0.1".to_owned()),
        master_port: RendezvousPort::Given(29500),
        conventions: Conventions::DeepSpeed,
        exports: Vec::new(),
        restarts_max: 0,
    };
    plan::plan(&spec).expect("a good plan")
}

pub(in crate::launch) fn options() -> Options {
    Options {
        job: JobId("scale".to_owned()),
        key: JobKey::from_random([7; 32]),
        command: CommandOptions {
            typed: Vec::new(),
            flags: Vec::new,
            cwd: PathBuf::from("/"),
            program: "true".into(),
            script: None,
            files: Vec::new(),
            venv_script: None,
            kept_state: None,
            package: None,
        },
        limits: LimitOptions {
            allocation: None,
            grace: Duration::from_secs(60),
            lease: Duration::from_secs(600),
            heartbeat_interval: Duration::from_secs(3),
            job: None,
            preflight: Duration::from_secs(600),
            group: Duration::ZERO,
        },
        failure: FailureOptions {
            restarts_max: 0,
            first_pause: PAUSE_MIN,
            warning: None,
            lets_others_run: false,
            cause_rule: CauseRule::ExitCodes,
            continue_with: ContinueWith::Nothing,
        },
        output: no_output(),
        devices: DeviceOptions { cores: None, gpu_sharing: GpuSharing::None },
        stdin: StdinTo::None,
        supervisor: SupervisorOptions::default(),
        transport: Transport::Local,
        elastic: None,
    }
}

/// Nothing is printed or kept.
fn no_output() -> OutputOptions {
    OutputOptions {
        style: Style {
            prefix: None,
            solo: None,
            log_dir: None,
            retention: LogRetention::CAPPED,
            rank_files: None,
            redirects: None,
            gather: false,
            hide_after_peer_loss: false,
            least_message: MessageLevel::Info,
            terminal: Terminal {
                stdout: false,
                stderr: false,
                paint: crate::report::diagnostic::Paint::Plain,
                stdout_paint: crate::report::diagnostic::Paint::Plain,
                status: StatusPlace::Nowhere,
                charset: Charset::Utf8,
                size: None,
            },
        },
        shows_progress: false,
        announcement: String::new(),
        framing: Framing::None,
        run_dir: None,
        log_dir: None,
        error_file: None,
    }
}

/// Creates links, the simulated agents at their other ends, and the record of what these report.
fn make_links(
    nodes: u32,
    scenario: &Scenario,
    at: u32,
) -> (Connector, Vec<(OwnedFd, AgentScript)>, ReportedExits) {
    let reported_exits = ReportedExits::default();
    let (mut links, mut agents) = (Vec::new(), Vec::new());
    for node in 0..nodes {
        let (launcher_end, agent_end) = fds::stream_pair().expect("descriptors");
        let (reader, writer) = split_socket(launcher_end).expect("a link");
        let (early, arrival) = (Vec::new(), SessionInfo::default());
        let agent = Box::new(NoProcess);
        links.push(Some(Link { reader, writer, agent, early, session: arrival }));
        // Some workers have exited with 0 before anything fails.
        let ends_well = match scenario {
            Scenario::AllSucceed => true,
            _ => node != at && node % 5 == 0,
        };
        agents.push((
            agent_end,
            AgentScript {
                scenario: (node == at).then(|| scenario.clone()),
                succeeds: ends_well,
                reported: Arc::clone(&reported_exits),
                running: Vec::new(),
            },
        ));
    }
    (Connector::Simulated(Mutex::new(links)), agents, reported_exits)
}

/// Runs the agents on a thread of their own, so that the launcher's CPU time can be measured apart.
fn play(agents: Vec<(OwnedFd, AgentScript)>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        runtime().block_on(async {
            let mut playing = tokio::task::JoinSet::new();
            for (link, part) in agents {
                let (reader, writer) = split_socket(link).expect("a link");
                playing.spawn(SimulatedAgent { reader, writer, part }.play());
            }
            playing.join_all().await;
        });
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Facts about a job that has ended.
struct ScenarioOutcome {
    verdict: Verdict,
    status: Status,
    exits: BTreeMap<Rank, (WorkerExit, bool)>,
    reported_exits: BTreeMap<Rank, (WorkerExit, bool)>,
}

async fn run_job(nodes: u32, scenario: &Scenario, at: u32) -> ScenarioOutcome {
    let (plan, options) = (plan_of(nodes), options());
    let (connector, agents, reported) = make_links(nodes, scenario, at);
    let playing = play(agents);
    let nowhere = || fds::null().expect("a descriptor");
    let mut dispatcher =
        Dispatcher::start(&plan, &options, (&connector, Arc::default()), (nowhere(), nowhere()))
            .expect("it starts");
    dispatcher.run_until_verdict().await;
    let verdict = dispatcher.job.verdict().expect("it has ended").clone();
    let workers = (0..).map(Rank).zip(&dispatcher.history.workers);
    let exits = workers.filter_map(|(rank, worker)| {
        let ended = worker.outcome.as_ref()?;
        Some((rank, (ended.exit, ended.stopped)))
    });
    let exits = exits.collect();
    let status = dispatcher.finish().await.status;
    drop(connector);
    playing.join().expect("the simulated agents do not panic");
    let reported_exits = reported.lock().expect("no panic while held").clone();
    ScenarioOutcome { verdict, status, exits, reported_exits }
}

/// An exit by signal outranks an exit code; of two of a kind the earlier counts, in any order of
/// arrival.
fn first_of(failures: &[(u32, Failure)]) -> (u32, WorkerExit) {
    let key = |(_, (exit, at)): &&(u32, Failure)| (matches!(exit, WorkerExit::Code(_)), *at);
    let (worker, (exit, _)) = failures.iter().min_by_key(key).expect("at least one worker fails");
    (*worker, *exit)
}

fn check_outcome(ended: &ScenarioOutcome, nodes: u32, scenario: &Scenario, at: u32) {
    assert_eq!(ended.exits, ended.reported_exits, "exactly the reported exits are known");
    let ranks = |node: u32| (node * WORKERS..(node + 1) * WORKERS).map(Rank);
    let cause = ended.verdict.cause.as_ref();
    match scenario {
        Scenario::AllSucceed => {
            assert_eq!((ended.status, cause), (Status::Success, None));
            assert!(ended.exits.values().all(|end| *end == (WorkerExit::Code(0), false)));
            assert_eq!(ended.exits.len() as u32, nodes * WORKERS);
        }
        Scenario::Fail(failures) => {
            let (worker, exit) = first_of(failures);
            let Some(FailureCause::Worker(end)) = cause else { panic!("{cause:?}") };
            assert_eq!((end.rank, end.exit), (Rank(at * WORKERS + worker), exit));
            assert_eq!(ended.status.code(), exit.shell_status());
            assert_eq!(ended.exits.len() as u32, nodes * WORKERS);
            assert_eq!(ended.verdict.also_failed, failures.len() - 1);
        }
        Scenario::LinkEnds | Scenario::Garbage | Scenario::SendsInvalid(_) => {
            let Some(FailureCause::Node { node, loss }) = cause else { panic!("{cause:?}") };
            assert_eq!(*node, NodeRank(at));
            assert_eq!(
                matches!(loss, NodeLoss::InvalidData(_)),
                !matches!(scenario, Scenario::LinkEnds)
            );
            assert!(ranks(at).all(|rank| !ended.exits.contains_key(&rank)));
            assert_eq!(ended.exits.len() as u32, (nodes - 1) * WORKERS);
        }
        Scenario::Refuses => {
            let config = Status::Config.code();
            assert_eq!((ended.status.code(), ended.exits.len()), (config, 0), "nothing started");
        }
    }
}

/// Resident memory of this process in kB.
fn resident_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("mounted");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a field");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// CPU time of this thread in microseconds.
fn busy_us() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    ns.unwrap_or_default() / 1000
}

/// Jobs of up to 4,096 nodes with two workers each; every sixth case has as many as that.
#[test]
fn prove_scale() {
    let mut random = Random::from_seed();
    let room = (fds::raise_limit().saturating_sub(100) / FDS_PER_NODE) as u32;
    for case in 0..proof_cases(3) {
        let nodes = SIZES[case % SIZES.len()].min(room);
        let (scenario, at) = (random_scenario(&mut random), random.below(nodes as usize) as u32);
        print_error(&format!("case {case}: {nodes} nodes, node {at}: {scenario:?}"));
        let (before_us, before_kb) = (busy_us(), resident_kb());
        let ended = runtime().block_on(run_job(nodes, &scenario, at));
        let us = busy_us().saturating_sub(before_us) / u64::from(nodes);
        // The agents of this process are included; memory that was in use before is not.
        let kb = resident_kb().saturating_sub(before_kb) / u64::from(nodes);
        print_error(&format!("; a node: {us} µs of the launcher, {kb} kB more\n"));
        check_outcome(&ended, nodes, &scenario, at);
    }
}

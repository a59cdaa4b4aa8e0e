//! Collection of facts from all nodes at the same time: on each, an agent is started as for a job,
//! examines its node, connects to other nodes, and exits. The facts are interpreted by `judge`.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::facts::{Clock, ExamOutcome, ExaminedNode, NodeFacts};
use super::partners::partners_of_nodes;
use crate::base::{Epoch, HostName, JobId, NodeRank, clock};
use crate::os::cpu::malloc;
use crate::os::files::fds::{TooFewFiles, require_open_files};
use crate::os::process::signal_stream::PendingSignal;
use crate::os::process::{process_tree, signals};
use crate::os::tasks::{Tasks, sleep_until};
use crate::pool::nodeset::fold_set;
use crate::report::escape_control;
use crate::report::text::{show_count, show_duration, show_step};
use crate::transport::ssh::{Ssh, SshOptions};
use crate::transport::{
    AgentEnvironment, AgentHandle, Link, LinkReader, LinkWriter, SessionInfo, connect_local,
    end_processes,
};
use crate::wire::{
    self, ClockOffset, Decoder, Depth, Examination, Examine, FromAgent, LauncherHello,
    ListenerOwner, PortRequest, ProbeListener, ProbeResult, ToAgent, Token,
};

/// Number of round trips by which a clock is compared.
const CLOCK_ROUND_TRIPS: u32 = 5;
/// Time limit for the first message of an agent.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for the report of an agent.
const EXAM_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for the results of a node's test connections, which themselves end earlier.
const PROBE_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for the exit of an agent after `Bye`.
const BYE_LIMIT: Duration = Duration::from_secs(1);
/// Interval of the lines that name the nodes that have not answered.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);
/// Characters of the names in such a line.
const NAMES_CHARS_MAX: usize = 60;
const LINK_READ_BYTES: usize = 64 * 1024;

/// How agents are started on nodes.
#[derive(Clone, Debug)]
pub enum NodeAccess {
    /// As local processes: every node is this machine.
    Local,
    /// Over ssh.
    Ssh(SshOptions),
}

/// Request to examine nodes.
#[derive(Clone, Debug)]
pub struct ExamRequest {
    /// How agents are started.
    pub access: NodeAccess,
    /// The hosts in the order of ranks, and the number of workers that each would have.
    pub nodes: Vec<(HostName, u32)>,
    /// Template of the request to every node; over ssh, its address applies to the first node only.
    pub node_request: Examine,
    /// Requested port for rank 0, on the first node.
    pub port: PortRequest,
    /// Whether every node connects to every other, however many there are.
    pub all_pairs: bool,
}

/// Why no node was examined.
#[derive(Debug, thiserror::Error)]
pub enum ExamError {
    /// The system refused threads, pipes or memory.
    #[error("cannot examine the hosts: {0}")]
    Os(#[from] io::Error),
    /// The limit of open files is too low for the links.
    #[error("{needed} open files are needed here, {0}", needed = .0.needed)]
    OpenFiles(#[from] TooFewFiles),
}

/// Result of an examination.
#[derive(Debug)]
pub struct ExamResult {
    /// Facts about each node, in the order of ranks.
    pub nodes: Vec<NodeFacts>,
    /// Signal that interrupted the examination, if one did.
    pub interrupted: Option<i32>,
}

/// Examines all nodes; `print` receives progress lines for the user. SIGINT and SIGTERM end the wait:
/// nodes that have not answered by then count as lost.
pub fn examine_nodes(request: &ExamRequest, print: &dyn Fn(&str)) -> Result<ExamResult, ExamError> {
    malloc::use_one_arena();
    signals::reset_sigchld();
    process_tree::become_subreaper();
    check_open_files(request)?;
    // Before any thread starts, because it forks.
    let starter = match &request.access {
        NodeAccess::Local => AgentStarter::Local,
        NodeAccess::Ssh(options) => {
            let options = SshOptions { verbose: true, ..options.clone() };
            AgentStarter::Ssh(Arc::new(Ssh::prepare(
                &options,
                request.nodes.iter().map(|(host, _)| host),
            )?))
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let result = runtime.block_on(async {
        let mut examiner = Examiner::new(request, starter, print)?;
        examiner.examine_all().await;
        if examiner.interrupted.is_none() {
            examiner.probe_all().await;
        }
        let interrupted = examiner.interrupted;
        Ok(ExamResult { nodes: examiner.finish().await, interrupted })
    });
    drop(runtime);
    end_processes();
    result
}

fn check_open_files(request: &ExamRequest) -> Result<(), TooFewFiles> {
    const OWN_FDS: u64 = 24;
    let of_link = match request.access {
        NodeAccess::Local => 1,
        NodeAccess::Ssh(_) => 6,
    };
    require_open_files(of_link * request.nodes.len() as u64 + OWN_FDS)
}

#[derive(Clone)]
enum AgentStarter {
    Local,
    Ssh(Arc<Ssh>),
}

/// State of an examination in progress.
struct Examiner<'a> {
    request: &'a ExamRequest,
    print: &'a dyn Fn(&str),
    starter: AgentStarter,
    token: Token,
    tasks: Tasks,
    interrupt: PendingSignal,
    terminate: PendingSignal,
    interrupted: Option<i32>,
    /// Outcome and session of each node, in the order of ranks; `None` until its task has finished.
    found: Vec<Option<(ExamOutcome, Option<NodeContext>)>>,
}

/// Result of a task: index of the node, outcome, and the session if the agent is connected.
type TaskResult = (usize, ExamOutcome, Option<NodeContext>);

impl<'a> Examiner<'a> {
    fn new(
        request: &'a ExamRequest,
        starter: AgentStarter,
        print: &'a dyn Fn(&str),
    ) -> io::Result<Self> {
        Ok(Self {
            request,
            print,
            starter,
            token: request.node_request.token,
            tasks: Tasks::default(),
            interrupt: PendingSignal::listen_to_keys(libc::SIGINT)?,
            terminate: PendingSignal::listen(libc::SIGTERM)?,
            interrupted: None,
            found: request.nodes.iter().map(|_| None).collect(),
        })
    }

    async fn examine_all(&mut self) {
        // Holds one result for each node.
        let (sender, results) = mpsc::unbounded_channel();
        for index in 0..self.request.nodes.len() {
            let (sender, starter) = (sender.clone(), self.starter.clone());
            let (host, request) = (self.request.nodes[index].0.clone(), self.request_for(index));
            self.tasks.spawn(async move {
                let node = NodeRank(index as u32);
                let (outcome, session) = examine(&starter, &host, node, request).await;
                let _ = sender.send((index, outcome, session));
            });
        }
        drop(sender);
        self.wait_for_results(results, "reports of").await;
    }

    /// The request for one node.
    fn request_for(&self, index: usize) -> Examine {
        const OTHERS_MAX: usize = 3;
        let others = self.request.nodes.iter().enumerate().filter(|(other, _)| *other != index);
        let others = others.map(|(_, (host, _))| host.to_string()).take(OTHERS_MAX).collect();
        let is_first = index == 0;
        let request = self.request.node_request.clone();
        let addr = match self.request.access {
            NodeAccess::Local => request.addr,
            NodeAccess::Ssh(_) => request.addr.filter(|_| is_first),
        };
        let by_ssh = matches!(self.request.access, NodeAccess::Ssh(_));
        let spans_machines = by_ssh || 1 < self.request.nodes.len();
        Examine {
            addr,
            others,
            port: is_first.then_some(self.request.port),
            spans_machines,
            ..request
        }
    }

    /// Makes every node connect to its partners, and to the port of rank 0.
    async fn probe_all(&mut self) {
        let reports: Vec<Option<&Examination>> =
            self.found.iter().map(|found| report_of(found.as_ref()?)).collect();
        let address = |node: usize| reports[node]?.network.listener.as_ref().ok().copied();
        let master = reports.first().copied().flatten();
        let master = master.and_then(|report| report.network.master.clone()?.ok());
        let token = self.token;
        let listeners_of = |partners: &Vec<usize>| -> Vec<ProbeListener> {
            let listener = |other: &usize| {
                let whose = ListenerOwner::Node(NodeRank(*other as u32));
                let name = self.name_to_resolve(*other);
                Some(ProbeListener { owner: whose, name, addr: address(*other)?, token })
            };
            let of_master = master.map(|addr| ProbeListener {
                owner: ListenerOwner::Master,
                name: None,
                addr,
                token,
            });
            partners.iter().filter_map(listener).chain(of_master).collect()
        };
        let partners = partners_of_nodes(reports.len(), self.request.all_pairs);
        let listeners: Vec<Vec<ProbeListener>> = partners.iter().map(listeners_of).collect();
        // Holds one result for each node.
        let (sender, results) = mpsc::unbounded_channel();
        for (index, listeners) in listeners.into_iter().enumerate() {
            let Some((outcome, Some(session))) = self.found[index].take_if(has_agent) else {
                continue;
            };
            let sender = sender.clone();
            self.tasks.spawn(async move {
                let (outcome, session) = probe(outcome, session, listeners).await;
                let _ = sender.send((index, outcome, Some(session)));
            });
        }
        drop(sender);
        self.wait_for_results(results, "connections between").await;
    }

    /// Name of a host that other nodes are to resolve; `None` if it is an address, or the
    /// examination is quick.
    fn name_to_resolve(&self, index: usize) -> Option<String> {
        let name = self.request.nodes[index].0.as_str();
        let is_address = name.starts_with('[') || name.parse::<IpAddr>().is_ok();
        (self.request.node_request.depth == Depth::Full && !is_address).then(|| name.to_owned())
    }

    /// Waits for the results of all tasks, and reports every 10 s which nodes have not answered;
    /// returns early at SIGINT or SIGTERM.
    async fn wait_for_results(
        &mut self,
        mut results: mpsc::UnboundedReceiver<TaskResult>,
        what: &str,
    ) {
        let (mut waited, mut wake) = (Duration::ZERO, clock::now() + NOTICE_INTERVAL);
        loop {
            tokio::select! {
                never = self.tasks.propagate_panics() => match never {},
                result = results.recv() => match result {
                    Some((index, outcome, session)) => self.found[index] = Some((outcome, session)),
                    None => return,
                },
                () = self.interrupt.recv() => return self.stop(libc::SIGINT),
                () = self.terminate.recv() => return self.stop(libc::SIGTERM),
                () = sleep_until(Some(wake)) => {
                    waited += NOTICE_INTERVAL;
                    wake += NOTICE_INTERVAL;
                    self.print_waiting(what, waited);
                }
            }
        }
    }

    /// Ends the tasks that are still running, after a signal.
    fn stop(&mut self, signal: i32) {
        self.interrupted = Some(signal);
        self.tasks = Tasks::default();
    }

    fn print_waiting(&self, what: &str, waited: Duration) {
        let nodes = self.request.nodes.iter().zip(&self.found);
        let missing: Vec<&str> = nodes
            .filter(|(_, found)| found.is_none())
            .map(|((host, _), _)| host.as_str())
            .collect();
        let (pending, mut names) = (missing.len(), fold_set(missing));
        if let Some((end, _)) = names.char_indices().nth(NAMES_CHARS_MAX) {
            names.truncate(end);
            names.push('…');
        }
        let all = show_count(self.found.len(), "host");
        let text = format!("{} for {what} {pending} of {all}: {names}", show_duration(waited));
        (self.print)(&show_step("Waiting", &text));
    }

    /// Ends all agents, and returns the facts.
    async fn finish(mut self) -> Vec<NodeFacts> {
        let mut facts = Vec::new();
        let why = match self.interrupted {
            Some(_) => "no answer before the examination was interrupted",
            None => "internal error: the examination ended without a result",
        };
        for ((host, slots), found) in self.request.nodes.iter().zip(self.found) {
            let (outcome, session) =
                found.unwrap_or_else(|| (ExamOutcome::NoReport(why.to_owned()), None));
            if let Some(session) = session {
                self.tasks.spawn(session.finish());
            }
            facts.push(NodeFacts { host: host.clone(), slots: *slots, outcome });
        }
        self.tasks.join_all().await;
        facts
    }
}

fn has_agent(found: &mut (ExamOutcome, Option<NodeContext>)) -> bool {
    found.1.is_some()
}

fn report_of((outcome, _): &(ExamOutcome, Option<NodeContext>)) -> Option<&Examination> {
    match outcome {
        ExamOutcome::Examined(examined) => Some(&examined.report),
        ExamOutcome::Unreachable(_)
        | ExamOutcome::NoReport(_)
        | ExamOutcome::OtherVersion { .. } => None,
    }
}

/// Starts an agent on a node and requests its report.
async fn examine(
    starter: &AgentStarter,
    host: &HostName,
    node: NodeRank,
    request: Examine,
) -> (ExamOutcome, Option<NodeContext>) {
    let since = clock::now();
    let job = JobId(format!("doctor-{}", std::process::id()));
    let link = match starter {
        AgentStarter::Local => {
            let words = ["agent".into(), format!("job={job}"), format!("node={node}")];
            match connect_local(&words.map(Into::into), AgentEnvironment::default()) {
                Ok(link) => link,
                Err(error) => {
                    return (
                        ExamOutcome::NoReport(format!("cannot start the agent: {error}")),
                        None,
                    );
                }
            }
        }
        AgentStarter::Ssh(ssh) => {
            // Output of the node beside the link is not part of the report.
            let on_line = |line: &str| tracing::debug!(line = %escape_control(line));
            match ssh.connect(host, (&job, node), Box::new(on_line), std::future::ready(())).await {
                Ok(link) => link,
                Err(fault) => return (ExamOutcome::Unreachable(fault), None),
            }
        }
    };
    let (mut session, ssh_session) = NodeContext::open(link);
    match session.examine(&job, node, ssh_session, request, since).await {
        Ok(examined) => (ExamOutcome::Examined(Box::new(examined)), Some(session)),
        Err(NoReport::Version(build)) => (ExamOutcome::OtherVersion { build }, Some(session)),
        Err(NoReport::Lost(why)) => (ExamOutcome::NoReport(why), Some(session)),
    }
}

async fn probe(
    outcome: ExamOutcome,
    mut session: NodeContext,
    listeners: Vec<ProbeListener>,
) -> (ExamOutcome, NodeContext) {
    let ExamOutcome::Examined(mut examined) = outcome else { return (outcome, session) };
    examined.probes = match session.probe(listeners).await {
        Ok(dialed) => Some(dialed),
        Err(NoReport::Lost(why) | NoReport::Version(why)) => {
            return (ExamOutcome::NoReport(why), session);
        }
    };
    (ExamOutcome::Examined(examined), session)
}

/// Why an agent sent no report.
enum NoReport {
    Lost(String),
    /// The agent uses another protocol version; its build.
    Version(String),
}

/// Session with the agent of one node.
struct NodeContext {
    reader: LinkReader,
    writer: LinkWriter,
    agent: Box<dyn AgentHandle>,
    decoder: Decoder,
}

impl NodeContext {
    fn open(link: Link) -> (Self, SessionInfo) {
        let Link { reader, writer, agent, early, session: arrival } = link;
        let mut decoder = Decoder::for_epoch(Epoch(0));
        decoder.push(&early);
        (Self { reader, writer, agent, decoder }, arrival)
    }

    async fn send(&self, message: &ToAgent) -> Result<(), NoReport> {
        let written = self.writer.write_all(&wire::encode(Epoch(0), message), &[]).await;
        written.map_err(|error| NoReport::Lost(format!("cannot send to the agent: {error}")))
    }

    async fn receive(&mut self) -> Result<FromAgent, NoReport> {
        let lost = |why: &str| NoReport::Lost(why.to_owned());
        loop {
            match self.decoder.message() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(lost(&error.to_string())),
            }
            match self.reader.read(self.decoder.room(LINK_READ_BYTES)).await {
                Ok(0) | Err(_) => return Err(lost("the connection ended")),
                Ok(_) => {}
            }
        }
    }

    /// Waits for the first message that `pick` accepts; heartbeats are skipped.
    async fn wait_for<T>(
        &mut self,
        limit: Duration,
        pick: impl Fn(FromAgent) -> Option<T>,
    ) -> Result<T, NoReport> {
        let answer = async {
            loop {
                if let Some(answer) = pick(self.receive().await?) {
                    return Ok(answer);
                }
            }
        };
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(NoReport::Lost(format!("no answer within {}", show_duration(limit)))),
        }
    }

    async fn examine(
        &mut self,
        job: &JobId,
        node: NodeRank,
        ssh_session: SessionInfo,
        request: Examine,
        since: Instant,
    ) -> Result<ExaminedNode, NoReport> {
        let hello = LauncherHello {
            version: wire::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            job: job.to_string(),
            node,
        };
        self.send(&ToAgent::Hello(hello)).await?;
        let hello = self.wait_for(HELLO_LIMIT, |message| match message {
            FromAgent::Hello(hello) => Some(hello),
            _ => None,
        });
        let hello = hello.await?;
        if hello.version != wire::VERSION {
            return Err(NoReport::Version(hello.build));
        }
        // The connection may have begun later than this task, because the number of simultaneous
        // connections is limited.
        let ssh_time = ssh_session.login.zip(ssh_session.shell).map(|(login, shell)| login + shell);
        let reached = ssh_time.unwrap_or_else(|| clock::now() - since);
        let offset = self.compare_clocks().await?;
        self.send(&ToAgent::Examine(Box::new(request))).await?;
        let report = self.wait_for(EXAM_LIMIT, |message| match message {
            FromAgent::Examined(report) => Some(*report),
            _ => None,
        });
        let report = report.await?;
        let clock = clock_difference(&offset, &report);
        Ok(ExaminedNode {
            session: ssh_session,
            connect_time: reached,
            build: hello.build,
            clock,
            report,
            probes: None,
        })
    }

    async fn compare_clocks(&mut self) -> Result<ClockOffset, NoReport> {
        let mut offset = ClockOffset::default();
        for _ in 0..CLOCK_ROUND_TRIPS {
            self.send(&ToAgent::Heartbeat { at_us: clock::machine_us() }).await?;
            let answer = self.wait_for(HELLO_LIMIT, |message| match message {
                FromAgent::Clock { sent_us: asked_us, clock_us } => Some((asked_us, clock_us)),
                _ => None,
            });
            let (asked_us, clock_us) = answer.await?;
            offset.add(asked_us, clock_us, clock::machine_us());
        }
        Ok(offset)
    }

    async fn probe(&mut self, listeners: Vec<ProbeListener>) -> Result<Vec<ProbeResult>, NoReport> {
        self.send(&ToAgent::Probe(listeners)).await?;
        let dialed = self.wait_for(PROBE_LIMIT, |message| match message {
            FromAgent::Probed(dialed) => Some(dialed),
            _ => None,
        });
        dialed.await
    }

    async fn finish(self) {
        let _ = self.send(&ToAgent::Bye).await;
        let Self { reader, writer, agent, .. } = self;
        drop((reader, writer));
        agent.wait_for_exit(BYE_LIMIT).await;
    }
}

/// Wall clock of a node compared with that of this machine, at the moment of its report.
fn clock_difference(offset: &ClockOffset, report: &Examination) -> Clock {
    let (now_us, wall_us) = (clock::machine_us(), clock::wall().as_micros() as i64);
    let age_us = now_us.wrapping_sub(offset.to_launcher_clock(report.machine.clock_us)) as i64;
    Clock {
        ahead_us: report.machine.wall_us as i64 - (wall_us - age_us),
        error_us: offset.error_us().unwrap_or(u64::MAX),
    }
}

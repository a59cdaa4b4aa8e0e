//! A node as the launcher sees it: a queue of messages to it, and a task that serves its link.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::base::{Epoch, HostName, JobId, NodeRank, Note, Rank, clock};
use crate::launch::manager::agents::{
    EndedCommand, ManagedAgents, ManagedCommand, end_of, fault_of_node, late_fault,
};
use crate::launch::node::join_deadline::{JoinDeadline, wait_for_node};
use crate::launch::node::join_limit::JoinLimit;
use crate::launch::node::protocol::foreign_rank_error;
use crate::launch::pod::metrics::LinkTraffic;
use crate::launch::startup::requests::NodeToConnect;
use crate::os::tasks::Tasks;
use crate::report::{OutputLink, OutputSender, escape_control};
use crate::transport::dial::{Acceptor, Joined};
use crate::transport::ssh::Ssh;
use crate::transport::{
    Absence, AgentEnd, AgentEnvironment, Fault, FaultKind, Link, LinkReader, LinkWriter,
    connect_local,
};
use crate::wire::{self, ClockOffset, Decoder, FromAgent, LauncherHello, Problem, ToAgent};

/// Buffer for one read from a link; it holds several pieces of output.
const LINK_READ_BYTES: usize = 256 * 1024;
/// Longer than any job.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// For nodes to which the launcher connects.
const NO_JOIN_LIMIT: JoinLimit = JoinLimit { time: Duration::ZERO, option: "" };
/// An agent that does not exit this long after its link has ended is no longer waited for.
const AGENT_EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// Upper bound of how far the clock of a node may appear to be ahead, because its offset is an
/// estimate.
const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(1);

/// A message of a node, or an event of its link.
pub(in crate::launch) struct NodeEvent {
    pub(in crate::launch) node: NodeRank,
    /// Number of the link to the node.
    pub(in crate::launch) link: u32,
    pub(in crate::launch) message: NodeMessage,
}

/// Content of a [`NodeEvent`].
pub(in crate::launch) enum NodeMessage {
    /// The ssh login succeeded; an agent will be started.
    LoggedIn,
    /// The link to the node was made.
    Connected,
    /// The node has taken part in every epoch before this one, with another node 0.
    EarlierEpochs {
        epoch: Epoch,
        free_restarts: u32,
    },
    /// The node has joined.
    Joined {
        /// The name of its machine.
        machine: String,
        /// Number of workers that its own line starts; `None`: it starts those that the launcher sends.
        own_workers: Option<u32>,
    },
    /// No link could be made.
    Unreachable(Fault),
    /// The command of a process manager that starts all nodes has ended before this one had joined, and the manager
    /// does not say that the node is the reason.
    FirstCommandEnded(Fault),
    /// The node has connected only to report why it cannot start its workers.
    Unfit(Vec<Problem>),
    Message(FromAgent),
    /// The link has ended, at this instant.
    Closed(AgentEnd, Instant),
    /// The data received is no valid message.
    InvalidData(String),
    /// A process of remuda on the node received a signal.
    Signal(i32),
}

/// How nodes are reached.
pub(in crate::launch) enum Connector {
    /// As processes of this machine.
    Local,
    Ssh(Arc<Ssh>),
    /// The first node is this machine, with this environment of its agent; the others connect by
    /// themselves, within this time.
    Dial(Arc<Acceptor>, JoinLimit, AgentEnvironment),
    /// A process manager starts the agents, which connect by themselves within this time.
    Managed(Arc<Acceptor>, JoinLimit, Arc<ManagedAgents>),
    /// Links that a test has made.
    #[cfg(test)]
    Simulated(std::sync::Mutex<Vec<Option<Link>>>),
}

/// A node and its link, which ends with the task that serves it. When the link ends, everything of
/// the job on the node ends.
pub(super) struct NodeHandle {
    to_agent: mpsc::UnboundedSender<QueuedFrame>,
    /// The epoch of the launcher and the agent; the task that reads the link loads it.
    epoch: Arc<AtomicU32>,
    ranks: Arc<LinkRanks>,
    /// Pid of the agent if it is a process of this machine.
    agent_pid: Option<Pid>,
    clock: ClockOffset,
    hello_sent_us: u64,
    task: AbortHandle,
}

/// A link to be made.
pub(in crate::launch) struct NewLink {
    /// Its number among the links to the node.
    pub(in crate::launch) number: u32,
    pub(in crate::launch) epoch: Epoch,
    /// When nodes that connect by themselves were first waited for.
    pub(in crate::launch) join_from: Instant,
    /// Time to wait before the launcher connects to the node.
    pub(in crate::launch) pause: Duration,
}

/// The ranks that a node may report on. The loop sets them; the task that reads the link loads them.
struct LinkRanks(AtomicU64);

impl LinkRanks {
    fn new(ranks: &Range<u32>) -> Self {
        Self(AtomicU64::new(Self::pack(ranks)))
    }

    fn pack(ranks: &Range<u32>) -> u64 {
        u64::from(ranks.start) << 32 | u64::from(ranks.end)
    }

    fn set(&self, ranks: &Range<u32>) {
        self.0.store(Self::pack(ranks), Ordering::Relaxed);
    }

    fn contains(&self, rank: Rank) -> bool {
        let packed = self.0.load(Ordering::Relaxed);
        ((packed >> 32) as u32..packed as u32).contains(&rank.0)
    }
}

/// An encoded message to a node.
enum QueuedFrame {
    Own(Vec<u8>),
    /// A frame that is sent to many nodes.
    Shared(Arc<[u8]>),
}

type FrameQueue = mpsc::UnboundedReceiver<QueuedFrame>;

/// Everything that is needed to connect to nodes, at the start or later.
pub(in crate::launch) struct ConnectContext<'a> {
    pub(in crate::launch) connector: &'a Connector,
    pub(in crate::launch) job: &'a JobId,
    pub(in crate::launch) events: mpsc::Sender<NodeEvent>,
    pub(in crate::launch) output: OutputSender,
    /// Counters of the links.
    pub(in crate::launch) traffic: Arc<LinkTraffic>,
    /// Whether nodes may join at any time.
    pub(in crate::launch) waits_for_ever: bool,
}

impl<'a> ConnectContext<'a> {
    pub(in crate::launch) fn new(
        connector: &'a Connector,
        job: &'a JobId,
        events: mpsc::Sender<NodeEvent>,
        output: OutputSender,
    ) -> Self {
        Self { connector, job, events, output, traffic: Arc::default(), waits_for_ever: false }
    }

    /// The environment of an agent on this machine.
    fn environment(&self) -> AgentEnvironment {
        match self.connector {
            Connector::Dial(_, _, environment) => *environment,
            Connector::Local | Connector::Ssh(_) | Connector::Managed(..) => {
                AgentEnvironment::default()
            }
            #[cfg(test)]
            Connector::Simulated(_) => AgentEnvironment::default(),
        }
    }

    /// How long the launcher waits for a node that connects by itself.
    pub(in crate::launch) fn join_limit(&self) -> JoinLimit {
        match self.connector {
            Connector::Dial(_, limit, _) | Connector::Managed(_, limit, _) => *limit,
            Connector::Local | Connector::Ssh(_) => NO_JOIN_LIMIT,
            #[cfg(test)]
            Connector::Simulated(_) => NO_JOIN_LIMIT,
        }
    }
}

/// Everything that the task of a node needs.
#[derive(Clone)]
struct LinkContext {
    node: NodeRank,
    /// Ranks of the node's workers.
    ranks: Arc<LinkRanks>,
    link: u32,
    /// The epoch in which the link was made.
    since: Epoch,
    epoch: Arc<AtomicU32>,
    events: mpsc::Sender<NodeEvent>,
    output: OutputSender,
    traffic: Arc<LinkTraffic>,
}

impl LinkContext {
    /// Sends an event to the launcher's loop.
    async fn send_event(&self, what: NodeMessage) {
        let _ =
            self.events.send(NodeEvent { node: self.node, link: self.link, message: what }).await;
    }
}

impl NodeHandle {
    /// Starts to make a link and queues the hello. One of `tasks` serves the link.
    pub(super) fn connect(
        caller: &ConnectContext<'_>,
        NodeToConnect { node, host, ranks }: NodeToConnect<'_>,
        NewLink { number: link, epoch: since, join_from, pause }: NewLink,
        tasks: &mut Tasks,
    ) -> io::Result<Self> {
        // An agent that does not read loses its lease, and its task is then aborted; standard input has a
        // limit of its own.
        let (to_agent, queue) = mpsc::unbounded_channel();
        let epoch = Arc::new(AtomicU32::new(since.0));
        let (events, output) = (caller.events.clone(), caller.output.clone());
        let traffic = Arc::clone(&caller.traffic);
        let own_epoch = Arc::clone(&epoch);
        let ranks = Arc::new(LinkRanks::new(&ranks));
        let own_ranks = Arc::clone(&ranks);
        let context = LinkContext {
            node,
            ranks: own_ranks,
            link,
            since,
            epoch: own_epoch,
            events,
            output,
            traffic,
        };
        let to = Destination { host, join_from, pause };
        let (agent, task) = serve_link(caller, to, context, queue, tasks)?;
        let node_handle = Self {
            to_agent,
            epoch,
            ranks,
            agent_pid: agent,
            clock: ClockOffset::default(),
            hello_sent_us: clock::machine_us(),
            task,
        };
        node_handle.send_hello(caller.job, node);
        Ok(node_handle)
    }

    /// Queues the hello, which the agent answers.
    pub(super) fn send_hello(&self, job: &JobId, node: NodeRank) {
        self.send(&ToAgent::Hello(LauncherHello {
            version: wire::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            job: job.to_string(),
            node,
        }));
    }

    /// Notes that the link exists; messages queued so far are sent over it.
    pub(super) fn on_connected(&mut self) {
        self.hello_sent_us = clock::machine_us();
    }

    /// Closes the link, or aborts the attempt to make one. An agent on another machine then exits.
    pub(super) fn close(&self) {
        self.task.abort();
    }

    /// Sends a message. If the agent is gone, the task that reads the link notices it.
    pub(super) fn send(&self, message: &ToAgent) {
        let _ = self.to_agent.send(QueuedFrame::Own(wire::encode(self.epoch(), message)));
    }

    /// Sends a frame that was encoded once for several nodes.
    pub(super) fn send_encoded(&self, frame: &Arc<[u8]>) {
        let _ = self.to_agent.send(QueuedFrame::Shared(Arc::clone(frame)));
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// Begins the next epoch on the same link: later messages belong to it.
    pub(super) fn begin_epoch(&self, epoch: Epoch) {
        self.send(&ToAgent::NextEpoch);
        self.epoch.store(epoch.0, Ordering::Relaxed);
    }

    /// Changes the epoch of a link on which nothing was started, unless the link was made for it.
    pub(super) fn skip_to_epoch(&self, epoch: Epoch) {
        if self.epoch() == epoch {
            return;
        }
        self.send(&ToAgent::SkipToEpoch(epoch));
        self.epoch.store(epoch.0, Ordering::Relaxed);
    }

    /// Notes which ranks the node may report on from now on.
    pub(super) fn assign_ranks(&self, ranks: Range<u32>) {
        self.ranks.set(&ranks);
    }

    /// Pid of the agent if it is a process of this machine.
    pub(super) fn agent_pid(&self) -> Option<Pid> {
        self.agent_pid
    }

    /// Handles the agent's hello, which contains the time of its clock. The start of the agent lies
    /// between request and answer, so the next answer gives a better estimate, and it is requested
    /// at once.
    pub(super) fn on_hello(&mut self, clock_us: u64) {
        self.clock.add(self.hello_sent_us, clock_us, clock::machine_us());
        self.send_heartbeat();
    }

    /// Sends a heartbeat, which also asks for the time.
    pub(super) fn send_heartbeat(&self) {
        self.send(&ToAgent::Heartbeat { at_us: clock::machine_us() });
    }

    /// Handles the answer to a heartbeat.
    pub(super) fn on_clock(&mut self, asked_us: u64, clock_us: u64) {
        self.clock.add(asked_us, clock_us, clock::machine_us());
    }

    /// Converts a time of the agent's clock to an instant of the launcher's. The offset is an
    /// estimate: a time up to 1 s in the future keeps its order, a later one becomes the present.
    pub(super) fn to_instant(&self, at_us: u64) -> Instant {
        let (now, now_us) = (clock::now(), clock::machine_us());
        let own_us = self.clock.to_launcher_clock(at_us);
        let age = Duration::from_micros(now_us.saturating_sub(own_us));
        let ahead = Duration::from_micros(own_us.saturating_sub(now_us));
        let past = now.checked_sub(age).unwrap_or(now);
        if ahead < CLOCK_AHEAD_MAX { past + ahead } else { now }
    }
}

/// Where a link leads, and when it is made.
struct Destination<'a> {
    host: &'a HostName,
    join_from: Instant,
    pause: Duration,
}

/// Starts the task that makes a link and serves it. Returns the agent too, if it is a process of this machine.
fn serve_link(
    caller: &ConnectContext<'_>,
    Destination { host, join_from, pause }: Destination<'_>,
    context: LinkContext,
    queue: FrameQueue,
    tasks: &mut Tasks,
) -> io::Result<(Option<Pid>, AbortHandle)> {
    let (node, job) = (context.node, caller.job);
    Ok(match caller.connector {
        Connector::Dial(acceptor, limit, _) if node != NodeRank(0) => {
            // If the number of nodes may vary, a node may join at any time.
            let time = if caller.waits_for_ever { FOR_EVER } else { limit.time };
            let deadline = JoinDeadline::after(join_from, JoinLimit { time, ..*limit });
            (None, tasks.spawn(serve_joined(Arc::clone(acceptor), deadline, context, queue)))
        }
        Connector::Managed(acceptor, limit, agents) => {
            let (acceptor, agents) = (Arc::clone(acceptor), Arc::clone(agents));
            // If the number of nodes may vary, a node is started again however long the others have run.
            let is_again = caller.waits_for_ever && 0 < context.link;
            let from = if is_again { clock::now() + pause } else { join_from };
            let deadline = JoinDeadline::after(from, *limit);
            let serve_later = async move {
                tokio::time::sleep(pause).await;
                let command = agents.command_of(node, 0 < context.link);
                serve_managed(acceptor, command, deadline, context, queue).await;
            };
            (None, tasks.spawn(serve_later))
        }
        Connector::Local | Connector::Dial(..) => {
            let args = ["agent".into(), format!("job={job}"), format!("node={node}")];
            let link = connect_local(&args.map(Into::into), caller.environment())?;
            (link.agent.pid(), tasks.spawn(serve(link, context, queue)))
        }
        Connector::Ssh(ssh) => {
            let (ssh, host, job) = (Arc::clone(ssh), host.clone(), job.clone());
            let serve_later = async move {
                tokio::time::sleep(pause).await;
                serve_remote(ssh, host, job, context, queue).await;
            };
            (None, tasks.spawn(serve_later))
        }
        #[cfg(test)]
        Connector::Simulated(links) => {
            let link = links.lock().expect("no panic while held")[node.index()].take();
            (None, tasks.spawn(serve_connected(link.expect("one for each node"), context, queue)))
        }
    })
}

async fn write(writer: LinkWriter, mut queue: FrameQueue) {
    while let Some(frame) = queue.recv().await {
        let written = match frame {
            QueuedFrame::Own(frame) => writer.write_all(&frame, &[]).await,
            QueuedFrame::Shared(frame) => writer.write_all(&frame, &[]).await,
        };
        if written.is_err() {
            return;
        }
    }
}

async fn serve_remote(
    ssh: Arc<Ssh>,
    host: HostName,
    job: JobId,
    context: LinkContext,
    queue: FrameQueue,
) {
    let (output, name) = (context.output.clone(), host.clone());
    let show_line =
        move |line: &str| output.print_message(format!("{name} │ {}\n", escape_control(line)));
    let (node, on_login) = ((&job, context.node), context.send_event(NodeMessage::LoggedIn));
    let connected = ssh.connect(&host, node, Box::new(show_line), on_login).await;
    if let Some(hint) = ssh.take_hint() {
        context.output.print_message(format!("note: {hint}\n"));
    }
    match connected {
        Ok(link) => serve_connected(link, context, queue).await,
        Err(fault) => context.send_event(NodeMessage::Unreachable(fault)).await,
    }
}

/// Waits for a node that a process manager starts, and serves it. The end of the manager, or of its process on
/// the node, before that is the reason why there is no link.
async fn serve_managed(
    acceptor: Arc<Acceptor>,
    command: ManagedCommand,
    deadline: JoinDeadline,
    context: LinkContext,
    queue: FrameQueue,
) {
    let joined = tokio::select! {
        biased;
        joined = wait_for_node(&acceptor, deadline, (context.node, context.link)) => joined,
        EndedCommand { fault, is_of_node } = end_of(command.clone(), context.node) => {
            if context.link == 0 && !is_of_node {
                return context.send_event(NodeMessage::FirstCommandEnded(fault)).await;
            }
            Err(Absence::Fault(fault))
        }
        fault = fault_of_node(command.clone(), context.node) => Err(Absence::Fault(fault)),
    };
    let joined = joined.map_err(|absence| match absence {
        Absence::Fault(fault) if fault.kind == FaultKind::NotJoined => {
            let late = late_fault(&command, context.node, deadline.limit.time);
            if 0 < context.link {
                command.give_up();
            }
            Absence::Fault(late.unwrap_or(fault))
        }
        Absence::Fault(_) | Absence::Unfit(_) => absence,
    });
    serve_if_joined(joined, context, queue).await;
}

/// Waits for a node that another system starts, and serves it.
async fn serve_joined(
    acceptor: Arc<Acceptor>,
    deadline: JoinDeadline,
    context: LinkContext,
    queue: FrameQueue,
) {
    let joined = wait_for_node(&acceptor, deadline, (context.node, context.link)).await;
    serve_if_joined(joined, context, queue).await;
}

async fn serve_if_joined(joined: Result<Joined, Absence>, context: LinkContext, queue: FrameQueue) {
    let joined = match joined {
        Ok(joined) => joined,
        Err(Absence::Fault(fault)) => {
            return context.send_event(NodeMessage::Unreachable(fault)).await;
        }
        Err(Absence::Unfit(problems)) => {
            return context.send_event(NodeMessage::Unfit(problems)).await;
        }
    };
    let Joined {
        link, mut signals, next_epoch: epoch, free_restarts, machine, own_workers, ..
    } = joined;
    context.send_event(NodeMessage::Joined { machine, own_workers }).await;
    if Epoch(0) < epoch {
        context.send_event(NodeMessage::EarlierEpochs { epoch, free_restarts }).await;
    }
    let signal_context = context.clone();
    let forward_signals = async {
        while let Some(signal) = signals.recv().await {
            signal_context.send_event(NodeMessage::Signal(signal)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serve_connected(link, context, queue) => {}
        () = forward_signals => {}
    }
}

/// Serves a link that was made after the start.
async fn serve_connected(link: Link, context: LinkContext, queue: FrameQueue) {
    context.send_event(NodeMessage::Connected).await;
    serve(link, context, queue).await;
}

/// Writes and reads until the link ends, and reaps the process at its other end.
async fn serve(link: Link, context: LinkContext, queue: FrameQueue) {
    let Link { reader, writer, agent, early, .. } = link;
    let read = async {
        let end = read_messages(&reader, &early, &context).await;
        drop(reader);
        let what = match end {
            Ok(()) => {
                let at = clock::now();
                NodeMessage::Closed(agent.wait_for_exit(AGENT_EXIT_TIMEOUT).await, at)
            }
            Err(why) => NodeMessage::InvalidData(why),
        };
        context.send_event(what).await;
    };
    tokio::join!(write(writer, queue), read);
}

/// Handles messages until the link ends: output goes to the reporter, the rest to the launcher's
/// loop.
async fn read_messages(
    reader: &LinkReader,
    early: &[u8],
    context: &LinkContext,
) -> Result<(), String> {
    let mut decoder = Decoder::for_epoch(context.since);
    decoder.push(early);
    loop {
        decoder.begin_epoch(Epoch(context.epoch.load(Ordering::Relaxed)));
        while let Some(message) = decoder.message().map_err(|error| error.to_string())? {
            match message {
                FromAgent::Output { rank, .. }
                | FromAgent::OutputEnd { rank, .. }
                | FromAgent::Note { rank, note: Note::Step { .. } | Note::Phase { .. } }
                    if !context.ranks.contains(rank) =>
                {
                    return Err(foreign_rank_error(rank));
                }
                FromAgent::Output { rank, stream, bytes } => {
                    context.traffic.output(stream, bytes.len());
                    let from = OutputLink { node: context.node, link: context.link };
                    context.output.output(from, rank, stream, bytes);
                }
                // Sent the same way as output, so that a step does not arrive after a later line.
                FromAgent::Note { rank, note: note @ (Note::Step { .. } | Note::Phase { .. }) } => {
                    context.traffic.progress.on_note(rank, note, &context.output);
                }
                FromAgent::OutputEnd { rank, stream, .. } => context.output.end(rank, stream),
                // Before the line in which the worker prints the loss too.
                FromAgent::Note { rank, note: Note::PeerLost { rank: peer } } => {
                    context.output.report_peer_lost(rank);
                    let note = Note::PeerLost { rank: peer };
                    context.send_event(NodeMessage::Message(FromAgent::Note { rank, note })).await;
                }
                message => context.send_event(NodeMessage::Message(message)).await,
            }
        }
        match reader.read(decoder.room(LINK_READ_BYTES)).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
}

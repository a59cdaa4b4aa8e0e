//! One node as the launcher sees it: a way to tell it things, and a task that reads its link.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::metrics::LinkTraffic;
use crate::base::{Epoch, HostName, JobId, NodeRank, Rank, clock};
use crate::os::tasks::Tasks;
use crate::report::summary::duration;
use crate::report::{OutputSender, WorkerStep, neutral};
use crate::transport::dial::{Acceptor, Joined};
use crate::transport::ssh::Ssh;
use crate::transport::{AgentEnd, Fault, FaultKind, Link, LinkReader, LinkWriter, connect_local};
use crate::wire::{self, ClockOffset, Decoder, FromAgent, LauncherHello, ToAgent, WorkerNote};

/// A read takes several pieces of output at once.
const LINK_READ_BYTES: usize = 256 * 1024;
/// An agent whose link has ended is given this long to be buried.
const AGENT_END_LIMIT: Duration = Duration::from_millis(500);

/// So far may the clock of a node seem to be ahead of what we know of it.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// What a node says, or what became of it.
pub(super) struct NodeEvent {
    pub(super) node: NodeRank,
    /// Over which link to it.
    pub(super) link: u32,
    pub(super) what: NodeMessage,
}

pub(super) enum NodeMessage {
    /// Ssh has let us in; there will be an agent.
    LetIn,
    /// There is a link.
    Connected,
    /// It has been in every epoch before this one, with another node 0.
    Fresh {
        epoch: Epoch,
        uncharged: u32,
    },
    /// There is none.
    Unreachable(Fault),
    Said(FromAgent),
    /// The link has ended.
    Closed(AgentEnd),
    /// What came is no message.
    Garbled(String),
    /// The process beside its agent was sent a signal.
    Signalled(i32),
}

/// How nodes are reached.
pub(super) enum Connector {
    /// As processes of this machine.
    Local,
    Ssh(Arc<Ssh>),
    /// The first is this machine, whose workers have this address if one was chosen; the others come by
    /// themselves, within this time.
    Dial(Arc<Acceptor>, Duration, Option<IpAddr>),
    /// Links that a test has made.
    #[cfg(test)]
    Played(std::sync::Mutex<Vec<Option<Link>>>),
}

/// See the module. The link ends with the task that serves it, and with it everything of the job on
/// the node.
pub(super) struct NodeHandle {
    to_agent: mpsc::UnboundedSender<Word>,
    /// Which link to the node this is, counted from 0.
    pub(super) link: u32,
    /// In which we and the agent are; who reads the link looks here.
    epoch: Arc<AtomicU32>,
    /// If it is a process of this machine.
    agent: Option<Pid>,
    clock: ClockOffset,
    hello_sent_us: u64,
    pub(super) stage: StartStage,
    /// When it last said something; `None` until there is a link.
    pub(super) heard: Option<Instant>,
    /// Whether it is lost: what it still says, and its end, are no news.
    pub(super) lost: bool,
    task: AbortHandle,
}

/// How far a node has come that has not answered whether it can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartStage {
    /// It was called, or will come by itself.
    Called,
    /// Ssh has let us in, and there is no agent yet.
    LetIn,
    /// Its agent was asked then, and looks.
    Asked(Instant),
}

/// What a node is to be told, as a frame.
enum Word {
    Own(Vec<u8>),
    /// Many nodes are told the same.
    Shared(Arc<[u8]>),
}

type Words = mpsc::UnboundedReceiver<Word>;

/// What is needed to reach nodes, whenever that is.
pub(super) struct Caller<'a> {
    pub(super) way: &'a Connector,
    pub(super) job: &'a JobId,
    /// When the nodes were asked whether they can start: none is waited for longer than the others.
    pub(super) asked: Instant,
    pub(super) events: mpsc::Sender<NodeEvent>,
    pub(super) output: OutputSender,
    /// What links count.
    pub(super) traffic: Arc<LinkTraffic>,
}

impl Caller<'_> {
    /// Where the workers of this machine are found, if somebody chose that.
    fn local_addr(&self) -> Option<IpAddr> {
        match self.way {
            Connector::Dial(_, _, at) => *at,
            Connector::Local | Connector::Ssh(_) => None,
            #[cfg(test)]
            Connector::Played(_) => None,
        }
    }

    /// How long a node is waited for that comes by itself.
    pub(super) fn limit(&self) -> Duration {
        match self.way {
            Connector::Dial(_, limit, _) => *limit,
            Connector::Local | Connector::Ssh(_) => Duration::ZERO,
            #[cfg(test)]
            Connector::Played(_) => Duration::ZERO,
        }
    }
}

/// What a node is to its task.
#[derive(Clone)]
struct Ends {
    node: NodeRank,
    /// Those of its workers.
    ranks: Range<u32>,
    link: u32,
    /// In which the link was made.
    since: Epoch,
    epoch: Arc<AtomicU32>,
    events: mpsc::Sender<NodeEvent>,
    output: OutputSender,
    traffic: Arc<LinkTraffic>,
}

impl Ends {
    /// Tells the loop.
    async fn tell(&self, what: NodeMessage) {
        let _ = self.events.send(NodeEvent { node: self.node, link: self.link, what }).await;
    }
}

impl NodeHandle {
    /// Sees to it that there will be a link, and says hello. One of `tasks` serves it.
    pub(super) fn connect(
        caller: &Caller<'_>,
        (node, host, ranks): (NodeRank, &HostName, Range<u32>),
        (link, since): (u32, Epoch),
        tasks: &mut Tasks,
    ) -> io::Result<Self> {
        let (to_agent, told) = mpsc::unbounded_channel();
        let (job, epoch) = (caller.job, Arc::new(AtomicU32::new(since.0)));
        let (events, output) = (caller.events.clone(), caller.output.clone());
        let traffic = Arc::clone(&caller.traffic);
        let own_epoch = Arc::clone(&epoch);
        let ends = Ends { node, ranks, link, since, epoch: own_epoch, events, output, traffic };
        let (agent, task) = match caller.way {
            Connector::Dial(gate, limit, _) if node != NodeRank(0) => {
                let until = (caller.asked + *limit, *limit);
                (None, tasks.spawn(serve_joined(Arc::clone(gate), until, ends, told)))
            }
            Connector::Local | Connector::Dial(..) => {
                let words = ["agent".into(), format!("job={job}"), format!("node={node}")];
                let link = connect_local(&words.map(Into::into), caller.local_addr())?;
                (link.agent.pid(), tasks.spawn(serve(link, ends, told)))
            }
            Connector::Ssh(ssh) => {
                let (ssh, host, job) = (Arc::clone(ssh), host.clone(), job.clone());
                (None, tasks.spawn(serve_remote(ssh, (host, job), ends, told)))
            }
            #[cfg(test)]
            Connector::Played(links) => {
                let link = links.lock().expect("no panic while held")[node.index()].take();
                (None, tasks.spawn(serve_new(link.expect("one for each node"), ends, told)))
            }
        };
        let node_handle = Self {
            to_agent,
            link,
            epoch,
            agent,
            clock: ClockOffset::default(),
            hello_sent_us: clock::machine_us(),
            stage: StartStage::Called,
            heard: agent.map(|_| clock::now()),
            lost: false,
            task,
        };
        node_handle.tell(&ToAgent::Hello(LauncherHello {
            version: wire::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            job: job.to_string(),
            node,
        }));
        Ok(node_handle)
    }

    /// There is a link now; what was said so far goes over it.
    pub(super) fn connected(&mut self) {
        self.hello_sent_us = clock::machine_us();
        self.heard = Some(clock::now());
    }

    /// Time in which we did not listen is not counted as its own.
    pub(super) fn put_off(&mut self, time: Duration) {
        if let StartStage::Asked(at) = &mut self.stage {
            *at += time;
        }
    }

    /// Ends the link, or the attempt to make one. An agent elsewhere ends itself with it.
    pub(super) fn hang_up(&self) {
        self.task.abort();
    }

    /// Says something. An agent that is gone is noticed by whoever reads.
    pub(super) fn tell(&self, message: &ToAgent) {
        let _ = self.to_agent.send(Word::Own(wire::encode(self.epoch(), message)));
    }

    /// The same for a frame that was made for several nodes.
    pub(super) fn tell_encoded(&self, frame: &Arc<[u8]>) {
        let _ = self.to_agent.send(Word::Shared(Arc::clone(frame)));
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// The next epoch begins on the same link: what is said from now on is of it.
    pub(super) fn renew(&self, epoch: Epoch) {
        self.tell(&ToAgent::Renew);
        self.epoch.store(epoch.0, Ordering::Relaxed);
    }

    /// Nothing was started on this link, and what will be is of this epoch.
    pub(super) fn skip(&self, epoch: Epoch) {
        self.tell(&ToAgent::Skip(epoch));
        self.epoch.store(epoch.0, Ordering::Relaxed);
    }

    /// The agent's process, if it is one of this machine.
    pub(super) fn agent(&self) -> Option<Pid> {
        self.agent
    }

    /// Its hello says what its clock shows. Its start lies in between, so the next answer will be
    /// worth more, and is asked for at once.
    pub(super) fn greeted(&mut self, clock_us: u64) {
        self.clock.add(self.hello_sent_us, clock_us, clock::machine_us());
        self.beat();
    }

    /// Says that we live and asks for the time, if there is a link.
    pub(super) fn beat(&self) {
        if self.heard.is_none() {
            return;
        }
        self.tell(&ToAgent::Beat { at_us: clock::machine_us() });
    }

    /// It answered a beat.
    pub(super) fn set_clock(&mut self, asked_us: u64, clock_us: u64) {
        self.clock.add(asked_us, clock_us, clock::machine_us());
    }

    /// A time of the agent's clock as an instant of ours. What we know of its clock is not exact: what
    /// seems to lie a little ahead keeps its order, what cannot be is now.
    pub(super) fn instant(&self, at_us: u64) -> Instant {
        let (now, now_us) = (clock::now(), clock::machine_us());
        let ours_us = self.clock.to_ours(at_us);
        let age = Duration::from_micros(now_us.saturating_sub(ours_us));
        let ahead = Duration::from_micros(ours_us.saturating_sub(now_us));
        let past = now.checked_sub(age).unwrap_or(now);
        if ahead < AHEAD_MAX { past + ahead } else { now }
    }
}

async fn write(writer: LinkWriter, mut told: Words) {
    while let Some(word) = told.recv().await {
        let written = match word {
            Word::Own(frame) => writer.write_all(&frame, &[]).await,
            Word::Shared(frame) => writer.write_all(&frame, &[]).await,
        };
        if written.is_err() {
            return;
        }
    }
}

async fn serve_remote(ssh: Arc<Ssh>, (host, job): (HostName, JobId), ends: Ends, told: Words) {
    let (output, name) = (ends.output.clone(), host.clone());
    let hear = move |line: &str| output.say(format!("{name} │ {}\n", neutral(line)));
    let (who, let_in) = ((&job, ends.node), ends.tell(NodeMessage::LetIn));
    let connected = ssh.connect(&host, who, Box::new(hear), let_in).await;
    if let Some(hint) = ssh.take_hint() {
        ends.output.say(format!("note: {hint}\n"));
    }
    match connected {
        Ok(link) => serve_new(link, ends, told).await,
        Err(fault) => ends.tell(NodeMessage::Unreachable(fault)).await,
    }
}

/// A node that somebody else starts, waited for until an instant, which is so long after the nodes were
/// asked.
async fn serve_joined(
    gate: Arc<Acceptor>,
    (until, limit): (Instant, Duration),
    ends: Ends,
    told: Words,
) {
    let joined = match tokio::time::timeout_at(until.into(), gate.wait_for(ends.node)).await {
        Ok(Some(Ok(joined))) => joined,
        Ok(Some(Err(unfit))) => return ends.tell(NodeMessage::Unreachable(unfit)).await,
        Ok(None) | Err(_) => {
            let absent = absent(&gate, &ends, limit).await;
            return ends.tell(NodeMessage::Unreachable(absent)).await;
        }
    };
    let Joined { link, mut signals, fresh: epoch, uncharged, .. } = joined;
    if Epoch(0) < epoch {
        ends.tell(NodeMessage::Fresh { epoch, uncharged }).await;
    }
    let signalled = ends.clone();
    let pass_on = async {
        while let Some(signal) = signals.recv().await {
            signalled.tell(NodeMessage::Signalled(signal)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serve_new(link, ends, told) => {}
        () = pass_on => {}
    }
}

/// The fault of a node that has not joined when the time is over: connections with another key prove
/// what is wrong.
async fn absent(gate: &Acceptor, ends: &Ends, limit: Duration) -> Fault {
    let (node, limit) = (ends.node, duration(limit));
    let mut words = format!("node {node} did not join within {limit}");
    if 0 < ends.link {
        words += "; its first connection was lost";
    }
    let Some(impostors) = gate.impostors(node).await else {
        return Fault::new(FaultKind::Absent, words);
    };
    let own = gate.own_key();
    let words = format!(
        "node {node} did not join within {limit} (--join_timeout): {impostors}; node 0's has the {own}"
    );
    Fault::new(FaultKind::OtherKey, words)
}

/// A link that was not there at the start.
async fn serve_new(link: Link, ends: Ends, told: Words) {
    ends.tell(NodeMessage::Connected).await;
    serve(link, ends, told).await;
}

/// Writes and reads until the link ends, and buries what was at its end.
async fn serve(link: Link, ends: Ends, told: Words) {
    let Link { reader, writer, agent, early, .. } = link;
    let read = async {
        let end = relay(&reader, &early, &ends).await;
        drop(reader);
        let what = match end {
            Ok(()) => NodeMessage::Closed(agent.bury(AGENT_END_LIMIT).await),
            Err(why) => NodeMessage::Garbled(why),
        };
        ends.tell(what).await;
    };
    tokio::join!(write(writer, told), read);
}

/// Why a node that says something about this worker cannot be understood.
pub(super) fn foreign(rank: Rank) -> String {
    format!("it speaks of rank {rank}, which is not its own")
}

/// Passes on what comes until the link ends: output to the screen, the rest to the loop.
async fn relay(reader: &LinkReader, early: &[u8], ends: &Ends) -> Result<(), String> {
    let mut decoder = Decoder::of(ends.since);
    decoder.push(early);
    loop {
        decoder.renew(Epoch(ends.epoch.load(Ordering::Relaxed)));
        while let Some(message) = decoder.message().map_err(|error| error.to_string())? {
            match message {
                FromAgent::Output { rank, .. }
                | FromAgent::OutputEnd { rank, .. }
                | FromAgent::Note { rank, note: WorkerNote::Step { .. } }
                    if !ends.ranks.contains(&rank.0) =>
                {
                    return Err(foreign(rank));
                }
                FromAgent::Output { rank, stream, bytes } => {
                    ends.traffic.output(stream, bytes.len());
                    ends.output.output((ends.node, ends.link), rank, stream, bytes);
                }
                // On the way of the output: a step does not come after a later line.
                FromAgent::Note {
                    rank,
                    note: WorkerNote::Step { step, steps, loss, tokens_per_s },
                } => {
                    let step = WorkerStep { step, steps, loss, tokens_per_s };
                    ends.traffic.step(rank, step);
                    ends.output.step(rank, step);
                }
                FromAgent::OutputEnd { rank, stream, .. } => ends.output.end(rank, stream),
                // Before the line in which it says so too.
                FromAgent::Note { rank, note: WorkerNote::PeerLost(peer) } => {
                    ends.output.left_alone(rank);
                    let note = WorkerNote::PeerLost(peer);
                    ends.tell(NodeMessage::Said(FromAgent::Note { rank, note })).await;
                }
                message => ends.tell(NodeMessage::Said(message)).await,
            }
        }
        match reader.read(decoder.room(LINK_READ_BYTES)).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
}

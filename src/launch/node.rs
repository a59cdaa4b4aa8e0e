//! One node as the launcher sees it: a way to tell it things, and a task that reads its link.

use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;

use crate::base::{JobId, NodeRank, WorkerExit, clock};
use crate::report::OutputSender;
use crate::transport::{AgentProcess, Link, LinkReader, LinkWriter, connect_local};
use crate::wire::{self, Decoder, FromAgent, LauncherHello, ToAgent};

/// A read takes several pieces of output at once.
const LINK_READ_BYTES: usize = 256 * 1024;
/// An agent whose link has ended is given this long to be buried.
const AGENT_END_LIMIT: Duration = Duration::from_millis(500);

/// What a node says, or what became of it.
pub(super) struct NodeEvent {
    pub(super) node: NodeRank,
    pub(super) what: Heard,
}

pub(super) enum Heard {
    Said(FromAgent),
    /// The link has ended; how the agent did, if it was ours and could be buried.
    Closed(Option<WorkerExit>),
    /// What came is no message.
    Garbled(String),
}

/// See the module. Dropping it ends the link, and with it everything of the job on the node.
pub(super) struct Node {
    to_agent: mpsc::UnboundedSender<ToAgent>,
    agent: Pid,
    /// Agent's clock − ours, in microseconds; known after its hello.
    pub(super) clock_offset_us: i64,
    hello_sent_us: u64,
    /// When it last said something.
    pub(super) heard: Instant,
    tasks: tokio::task::JoinSet<()>,
}

impl Node {
    /// Starts its agent and says hello.
    pub(super) fn connect(
        node: NodeRank,
        job: &JobId,
        events: mpsc::UnboundedSender<NodeEvent>,
        output: OutputSender,
    ) -> io::Result<Self> {
        let arguments =
            ["agent".into(), format!("job={job}").into(), format!("node={node}").into()];
        let Link { reader, writer, agent } = connect_local(&arguments.map(|word: OsString| word))?;
        let (to_agent, told) = mpsc::unbounded_channel();
        let pid = agent.pid();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(write(writer, told));
        tasks.spawn(read(node, reader, agent, events, output));
        let hello_sent_us = clock::machine_us();
        let node_handle = Self {
            to_agent,
            agent: pid,
            clock_offset_us: 0,
            hello_sent_us,
            heard: clock::now(),
            tasks,
        };
        node_handle.tell(ToAgent::Hello(LauncherHello {
            version: wire::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            job: job.to_string(),
            node,
        }));
        Ok(node_handle)
    }

    /// Says something. An agent that is gone is noticed by whoever reads.
    pub(super) fn tell(&self, message: ToAgent) {
        let _ = self.to_agent.send(message);
    }

    /// The agent's process.
    pub(super) fn agent(&self) -> Pid {
        self.agent
    }

    /// Its hello says what its clock shows; half of the round trip has passed since.
    pub(super) fn set_clock(&mut self, clock_us: u64) {
        let middle = u64::midpoint(self.hello_sent_us, clock::machine_us());
        self.clock_offset_us = clock_us as i64 - middle as i64;
    }

    /// A time of the agent's clock as an instant of ours.
    pub(super) fn instant(&self, at_us: u64) -> Instant {
        let age_us = clock::machine_us() as i64 - (at_us as i64 - self.clock_offset_us);
        let (now, age) = (clock::now(), Duration::from_micros(u64::try_from(age_us).unwrap_or(0)));
        now.checked_sub(age).unwrap_or(now)
    }

    /// Waits until its tasks have ended: the agent was told [`ToAgent::Bye`], and is buried.
    pub(super) async fn close(mut self) {
        drop(self.to_agent);
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn write(writer: LinkWriter, mut told: mpsc::UnboundedReceiver<ToAgent>) {
    while let Some(message) = told.recv().await {
        if writer.write_all(&wire::encode(&message), &[]).await.is_err() {
            return;
        }
    }
}

async fn read(
    node: NodeRank,
    reader: LinkReader,
    mut agent: AgentProcess,
    events: mpsc::UnboundedSender<NodeEvent>,
    output: OutputSender,
) {
    let end = relay(node, &reader, &events, &output).await;
    drop(reader);
    let what = match end {
        Ok(()) => Heard::Closed(bury(&mut agent).await),
        Err(error) => Heard::Garbled(error.to_string()),
    };
    let _ = events.send(NodeEvent { node, what });
}

/// Passes on what comes until the link ends: output to the screen, the rest to the loop.
async fn relay(
    node: NodeRank,
    reader: &LinkReader,
    events: &mpsc::UnboundedSender<NodeEvent>,
    output: &OutputSender,
) -> Result<(), wire::FrameError> {
    let mut decoder = Decoder::default();
    loop {
        match reader.read(decoder.room(LINK_READ_BYTES)).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
        while let Some(message) = decoder.message()? {
            match message {
                FromAgent::Output { rank, stream, bytes } => {
                    output.output(node, rank, stream, bytes);
                }
                FromAgent::OutputEnd { rank, stream, .. } => output.end(rank, stream),
                message => {
                    let _ = events.send(NodeEvent { node, what: Heard::Said(message) });
                }
            }
        }
    }
}

async fn bury(agent: &mut AgentProcess) -> Option<WorkerExit> {
    const PAUSE: Duration = Duration::from_micros(200);
    let deadline = clock::now() + AGENT_END_LIMIT;
    loop {
        let exit = agent.try_wait();
        if exit.is_some() || deadline < clock::now() {
            return exit;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

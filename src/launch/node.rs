//! One node as the launcher sees it: a way to tell it things, and a task that reads its link.

use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;

use super::offset::ClockOffset;
use super::orders::EPOCH;
use crate::base::{JobId, NodeRank, WorkerExit, clock};
use crate::os::tasks::Tasks;
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

/// See the module. The link ends with the tasks that serve it, and with it everything of the job on
/// the node.
pub(super) struct Node {
    to_agent: mpsc::UnboundedSender<ToAgent>,
    agent: Pid,
    clock: ClockOffset,
    hello_sent_us: u64,
    /// When it last said something.
    pub(super) heard: Instant,
    /// Whether it is lost: what it still says, and its end, are no news.
    pub(super) lost: bool,
}

impl Node {
    /// Starts its agent and says hello. `tasks` serve the link.
    pub(super) fn connect(
        node: NodeRank,
        job: &JobId,
        events: mpsc::UnboundedSender<NodeEvent>,
        output: OutputSender,
        tasks: &mut Tasks,
    ) -> io::Result<Self> {
        let arguments =
            ["agent".into(), format!("job={job}").into(), format!("node={node}").into()];
        let Link { reader, writer, agent } = connect_local(&arguments.map(|word: OsString| word))?;
        let (to_agent, told) = mpsc::unbounded_channel();
        let pid = agent.pid();
        tasks.spawn(write(writer, told));
        tasks.spawn(read(node, reader, agent, events, output));
        let hello_sent_us = clock::machine_us();
        let node_handle = Self {
            to_agent,
            agent: pid,
            clock: ClockOffset::default(),
            hello_sent_us,
            heard: clock::now(),
            lost: false,
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

    /// Its hello says what its clock shows. Its start lies in between, so the next answer will be
    /// worth more, and is asked for at once.
    pub(super) fn greeted(&mut self, clock_us: u64) {
        self.clock.add(self.hello_sent_us, clock_us, clock::machine_us());
        self.beat();
    }

    /// Says that we live and asks for the time.
    pub(super) fn beat(&self) {
        self.tell(ToAgent::Beat { at_us: clock::machine_us() });
    }

    /// It answered a beat.
    pub(super) fn set_clock(&mut self, asked_us: u64, clock_us: u64) {
        self.clock.add(asked_us, clock_us, clock::machine_us());
    }

    /// A time of the agent's clock as an instant of ours.
    pub(super) fn instant(&self, at_us: u64) -> Instant {
        let age_us = clock::machine_us().saturating_sub(self.clock.to_ours(at_us));
        let now = clock::now();
        now.checked_sub(Duration::from_micros(age_us)).unwrap_or(now)
    }
}

async fn write(writer: LinkWriter, mut told: mpsc::UnboundedReceiver<ToAgent>) {
    while let Some(message) = told.recv().await {
        if writer.write_all(&wire::encode(EPOCH, &message), &[]).await.is_err() {
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
    let mut decoder = Decoder::of(EPOCH);
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

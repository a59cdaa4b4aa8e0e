//! Helpers of the tests of this module: an agent in virtual time, beside a shim that answers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::agent_state::AgentState;
use super::event::{AgentEffect, AgentEvent, ShimStatus};
use crate::agent::shim::{FromShim, ToShim};
use crate::base::{LocalRank, Rank, WorkerExit};
use crate::secure::JobKey;
use crate::wire::{
    FromAgent, NodeRoster, Prepare, PreparedNode, Start, Stream, ToAgent, WorkerStart,
};

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const HEARTBEAT: Duration = Duration::from_secs(3);
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// An agent and its time, which passes only in [`TestAgent::pass`].
pub(super) struct TestAgent {
    pub(super) state: AgentState,
    pub(super) now: Instant,
    /// What the kernel says about the shim; a shim that is not running answers no ping.
    pub(super) shim_status: ShimStatus,
    wake_at: Instant,
}

impl TestAgent {
    /// An agent that has received no message.
    pub(super) fn new(now: Instant) -> Self {
        let state = AgentState::new(now);
        Self { state, now, shim_status: ShimStatus::Running, wake_at: now }
    }

    /// An agent whose node has passed the preflight checks.
    pub(super) fn ready(now: Instant) -> Self {
        let mut agent = Self::new(now);
        let effects = agent.say(ToAgent::Prepare(Box::new(prepare())));
        assert!(matches!(effects[..], [AgentEffect::RunPreflight(_)]), "{effects:?}");
        agent.pass_preflight();
        agent
    }

    /// An agent with this many workers that were forked.
    pub(super) fn started(now: Instant, workers: u32) -> Self {
        let mut agent = Self::ready(now);
        agent.start(workers);
        agent
    }

    /// Answers a request for preflight checks.
    pub(super) fn pass_preflight(&mut self) {
        let found = PreparedNode { master: None, store: None, cpus: 1, notes: Vec::new() };
        let prepare = Box::new(prepare());
        let effects = self.step(AgentEvent::PreflightDone { prepare, result: Ok(found.clone()) });
        assert_eq!(effects, [self.sent(FromAgent::Ready(found))]);
    }

    /// Starts workers on a node that is ready.
    pub(super) fn start(&mut self, workers: u32) {
        self.say(ToAgent::Roster(NodeRoster { nodes: vec![("n0".to_owned(), workers)] }.pack()));
        let effects = self.say(ToAgent::Start(start(workers)));
        let [AgentEffect::OpenWindow(_), AgentEffect::StartWorkers(_)] = effects[..] else {
            panic!("{effects:?}")
        };
        for worker in 0..workers {
            let (pid, at_us) = (100 + worker, 0);
            let effects = self.hear(FromShim::Forked { worker, pid, at_us });
            let started = self.sent(FromAgent::Started { rank: Rank(worker), pid, at_us });
            assert_eq!(effects[1..], [started]);
        }
    }

    /// Applies an event and answers requests about the shim, as the event loop does. Returns the
    /// other effects, without wakes and heartbeats.
    pub(super) fn step(&mut self, event: AgentEvent) -> Vec<AgentEffect> {
        let (mut events, mut found) = (VecDeque::from([event]), Vec::new());
        while let Some(event) = events.pop_front() {
            for effect in self.state.step(self.now, event) {
                match effect {
                    AgentEffect::Wake(at) => self.wake_at = at,
                    AgentEffect::Send { message: FromAgent::Heartbeat, .. } => {}
                    AgentEffect::InspectShim(check) => {
                        events.push_back(AgentEvent::ShimInspected(check, self.shim_status));
                    }
                    AgentEffect::SendToShim(ToShim::Ping { .. }) => {
                        let (message, descriptors) = (FromShim::Pong, 0);
                        if self.shim_status == ShimStatus::Running {
                            events.push_back(AgentEvent::ShimMessage { message, descriptors });
                        }
                    }
                    effect => found.push(effect),
                }
            }
        }
        found
    }

    /// The launcher sends a message.
    pub(super) fn say(&mut self, message: ToAgent) -> Vec<AgentEffect> {
        self.step(AgentEvent::Message { epoch: self.state.epoch, message })
    }

    /// The shim sends a message.
    pub(super) fn hear(&mut self, message: FromShim) -> Vec<AgentEffect> {
        let descriptors = if matches!(message, FromShim::Forked { .. }) { 4 } else { 0 };
        self.step(AgentEvent::ShimMessage { message, descriptors })
    }

    /// Time passes, and the agent handles its timers when they are due.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<AgentEffect> {
        let (end, mut found) = (self.now + time, Vec::new());
        while self.wake_at <= end && self.state.exit_status().is_none() {
            self.now = self.now.max(self.wake_at);
            found.extend(self.step(AgentEvent::Timer));
        }
        self.now = end;
        found
    }

    /// Time passes for everything but this agent, which is suspended meanwhile.
    pub(super) fn suspend(&mut self, time: Duration) -> Vec<AgentEffect> {
        self.now += time;
        self.pass(Duration::ZERO)
    }

    /// A worker exits.
    pub(super) fn exit(&mut self, worker: u32, exit: WorkerExit) -> Vec<AgentEffect> {
        self.hear(FromShim::Exited { worker, exit, at_us: 0, signals_sent: Vec::new() })
    }

    /// Both streams of a worker end.
    pub(super) fn end_streams(&mut self, worker: usize) -> Vec<AgentEffect> {
        let end = |stream| AgentEvent::StreamEnded { worker, stream, is_held_open: false };
        let mut effects = self.step(end(Stream::Stdout));
        effects.extend(self.step(end(Stream::Stderr)));
        effects
    }

    /// The effect that sends a message in the current epoch.
    pub(super) fn sent(&self, message: FromAgent) -> AgentEffect {
        AgentEffect::Send { epoch: self.state.epoch, message }
    }
}

pub(super) fn prepare() -> Prepare {
    let ms = |time: Duration| time.as_millis() as u32;
    Prepare {
        cwd: b"/".to_vec(),
        program: b"train".to_vec(),
        script: None,
        fds: 8,
        listen: None,
        key: JobKey::from_random([7; 32]),
        rank_limit: 1,
        lease_ms: ms(LEASE),
        heartbeat_ms: ms(HEARTBEAT),
        grace_ms: ms(GRACE),
        cores: None,
        venv_script: None,
        gpu_locks: None,
        files: Vec::new(),
        spans_machines: false,
        package: None,
    }
}

pub(super) fn start(workers: u32) -> Start {
    let worker = |rank| WorkerStart {
        rank: Rank(rank),
        local_rank: LocalRank(rank),
        argv: Vec::new(),
        env: Vec::new(),
        env_default: Vec::new(),
        env_without_gpu: Vec::new(),
        stdin: false,
    };
    let workers = (0..workers).map(worker).collect();
    Start { workers, store: None, window_bytes: 0, group_limit_ms: 0 }
}

/// The effects that signal the workers.
pub(super) fn signalled(signal: i32) -> [AgentEffect; 2] {
    [AgentEffect::SignalShim(18), AgentEffect::SendToShim(ToShim::Signal(signal))]
}

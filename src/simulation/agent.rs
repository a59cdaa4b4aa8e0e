//! A simulated agent: the real state machine, with its effects performed on simulated processes.

use std::collections::VecDeque;

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::incidents::Check;
use super::mistakes::Mistake;
use super::network::{Parcel, Way};
use super::processes::{ShimRequest, SimulatedAgent, SimulatedHost, SimulatedShim};
use super::story::Teller;
use super::world::{Happening, Simulation};
use crate::agent::{
    AgentEffect, AgentEvent, AgentState, Credit, ExitReport, FromShim, PreflightRequest, ShimCheck,
    ShimStatus, StartRequest, ToShim,
};
use crate::base::{Epoch, Status, WorkerExit};
use crate::wire::{
    self, AgentHello, Decoder, FromAgent, KernelReport, MasterEndpoint, PreparedNode, Problem,
    Stream, ToAgent, WorkerStartStep,
};

/// Interval of the attempts to take the lock of a node.
const LOCK_PAUSE: Micros = 200 * MS;
const SHUTDOWN_MARGIN: Micros = 5 * SECOND;
const EPIPE: i32 = 32;
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;

/// What an agent handles next.
#[derive(Clone, Copy)]
enum Source {
    Link,
    Shim,
    Result,
    Timer,
}

impl Simulation {
    /// Starts an agent on a host, at the other end of a connection.
    pub(super) fn start_agent(&mut self, host: usize, connection: usize) -> usize {
        let index = self.agents.len();
        let state = AgentState::new(self.instant(self.now()));
        let mut shim = SimulatedShim::default();
        (shim.is_alive, shim.has_agent, shim.is_empty_reported) = (true, true, true);
        self.agents.push(SimulatedAgent {
            host,
            connection,
            state,
            decoder: Decoder::default(),
            is_link_open: true,
            is_link_readable: false,
            has_link_ended: false,
            packets: VecDeque::new(),
            knows_shim_exit: false,
            results: VecDeque::new(),
            unread: VecDeque::new(),
            credit: Credit::default(),
            wake_at: self.now(),
            scheduled_wake: Micros::MAX,
            suspensions: 0,
            is_alive: true,
            finishing: None,
            waiting: None,
            has_lock: false,
            shim,
            has_member: self.connects_by_itself(self.hosts[host].node),
            epoch: Epoch(0),
            idle_epochs: Vec::new(),
        });
        self.tell(Teller::Agent { host, agent: index }, || "starts".to_owned());
        self.soon(Happening::AgentRuns(index));
        index
    }

    /// The agent handles everything that it has received.
    pub(super) fn run_agent(&mut self, index: usize) {
        loop {
            let agent = &self.agents[index];
            let is_off = 0 < agent.suspensions || 0 < self.hosts[agent.host].suspensions;
            if !agent.is_alive || is_off {
                return;
            }
            if agent.finishing.is_some() {
                return self.finish_agent(index);
            }
            if let Some(status) = agent.state.exit_status() {
                self.agents[index].finishing = Some(status);
                self.agents[index].shim.has_agent = false;
                self.soon(Happening::ShimRuns(index));
                continue;
            }
            let Some(event) = self.next_agent_event(index) else { break };
            self.step_agent(index, event);
        }
        self.forward_output(index);
        self.schedule_agent_wake(index);
    }

    fn schedule_agent_wake(&mut self, index: usize) {
        let now = self.now();
        let agent = &mut self.agents[index];
        let is_scheduled = now < agent.scheduled_wake && agent.scheduled_wake <= agent.wake_at;
        if !is_scheduled {
            agent.scheduled_wake = agent.wake_at;
            self.agenda.add(agent.wake_at, Happening::AgentRuns(index));
        }
    }

    /// The next event, of any source that has one.
    fn next_agent_event(&mut self, index: usize) -> Option<AgentEvent> {
        loop {
            let agent = &self.agents[index];
            let has_packet =
                !agent.packets.is_empty() || !agent.shim.is_alive && !agent.knows_shim_exit;
            let ready = [
                (Source::Link, agent.is_link_readable && agent.is_link_open),
                (Source::Shim, has_packet),
                (Source::Result, !agent.results.is_empty()),
                (Source::Timer, agent.wake_at <= self.agenda.now),
            ];
            let count = ready.iter().filter(|(_, is_ready)| *is_ready).count();
            if count == 0 {
                return None;
            }
            let chosen = if count == 1 { 0 } else { self.random.below(count) };
            let source = ready.iter().filter(|(_, is_ready)| *is_ready).nth(chosen)?.0;
            let agent = &mut self.agents[index];
            match source {
                Source::Link => {
                    if let Some(event) = next_message(agent) {
                        return Some(event);
                    }
                }
                Source::Shim => {
                    let Some(message) = agent.packets.pop_front() else {
                        agent.knows_shim_exit = true;
                        return Some(AgentEvent::ShimExited);
                    };
                    let is_fork = matches!(message, FromShim::Forked { .. });
                    let descriptors = if is_fork { 3 } else { 0 };
                    return Some(AgentEvent::ShimMessage { message, descriptors });
                }
                Source::Result => return agent.results.pop_front(),
                Source::Timer => return Some(AgentEvent::Timer),
            }
        }
    }

    /// Applies an event and the answers to its effects, as the agent's event loop does.
    fn step_agent(&mut self, index: usize, event: AgentEvent) {
        let now = self.instant(self.now());
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let event = self.mistake_agent_event(event);
            for effect in self.agents[index].state.step(now, event) {
                events.extend(self.perform_for_agent(index, effect));
            }
        }
    }

    /// What a defective agent would take the event for.
    fn mistake_agent_event(&self, event: AgentEvent) -> AgentEvent {
        match (self.mistake, event) {
            (
                Some(Mistake::AgentIgnoresLease),
                AgentEvent::Message { epoch, message: ToAgent::Prepare(mut prepare) },
            ) => {
                prepare.lease_ms = u32::MAX;
                AgentEvent::Message { epoch, message: ToAgent::Prepare(prepare) }
            }
            (_, event) => event,
        }
    }

    fn perform_for_agent(&mut self, index: usize, effect: AgentEffect) -> Option<AgentEvent> {
        let host = self.agents[index].host;
        match effect {
            AgentEffect::Send { epoch, message } => self.send_to_launcher(index, epoch, &message),
            AgentEffect::SendHello(epoch) => {
                let clock_us = self.clock_us(host);
                let (version, build) = (wire::VERSION, String::new());
                let hello = AgentHello { version, build, pid: index as u32, clock_us };
                self.send_to_launcher(index, epoch, &FromAgent::Hello(hello));
            }
            AgentEffect::SendClock { epoch, sent_us } => {
                let clock_us = self.clock_us(host);
                self.send_to_launcher(index, epoch, &FromAgent::Clock { sent_us, clock_us });
            }
            AgentEffect::BeginEpoch(epoch) => {
                let agent = &mut self.agents[index];
                agent.decoder.begin_epoch(epoch);
                agent.epoch = epoch;
            }
            AgentEffect::CloseLink => {
                self.agents[index].is_link_open = false;
                self.tell(Teller::Agent { host, agent: index }, || {
                    "has lost its launcher and stops its workers".to_owned()
                });
            }
            AgentEffect::AttachWorker { worker, .. } => {
                self.attach_worker(self.agents[index].shim.workers[worker]);
            }
            AgentEffect::RunPreflight(request) => self.run_checks(index, request),
            AgentEffect::StartWorkers(request) => return self.request_workers(index, &request),
            AgentEffect::ReportExit(report) => self.report_exit(index, report),
            AgentEffect::CancelStreams(worker) => {
                let worker = self.agents[index].shim.workers[worker];
                for stream in [Stream::Stdout, Stream::Stderr] {
                    self.soon(Happening::StreamEnds { worker, stream, is_held_open: true });
                }
            }
            AgentEffect::SendToShim(message) => self.request_of_shim(index, message),
            AgentEffect::SignalShim(signal) => self.signal_shim(index, signal),
            AgentEffect::InspectShim(check) => return Some(self.inspect_shim(index, check)),
            AgentEffect::ReapOrphans => return Some(self.reap_orphans(index)),
            AgentEffect::Wake(at) => self.agents[index].wake_at = self.micros(at),
            AgentEffect::Print(text) => {
                self.tell(Teller::Agent { host, agent: index }, || format!("prints: {text}"));
            }
            AgentEffect::OpenWindow(bytes) => self.agents[index].credit.open(bytes),
            AgentEffect::AcknowledgeOutput(bytes) => return self.acknowledge_output(index, bytes),
            // Standard input and examinations have no part in these runs.
            AgentEffect::DetachWorker(_)
            | AgentEffect::Broadcast(_)
            | AgentEffect::WriteStdin { .. }
            | AgentEffect::FindSuspended(_)
            | AgentEffect::CheckGroup { .. }
            | AgentEffect::Examine(_)
            | AgentEffect::Probe(_) => {}
        }
        None
    }

    fn clock_us(&self, host: usize) -> u64 {
        self.now() + self.hosts[host].clock_ahead
    }

    fn send_to_launcher(&mut self, index: usize, epoch: Epoch, message: &FromAgent) {
        if let FromAgent::Idle { .. } = message {
            let agent = &mut self.agents[index];
            if agent.idle_epochs.contains(&epoch) {
                self.truth.fail(Check::EndsOnce, || {
                    format!("agent {index} reports the end of epoch {epoch} twice")
                });
            }
            self.agents[index].idle_epochs.push(epoch);
            let host = self.agents[index].host;
            let teller = Teller::Agent { host, agent: index };
            self.tell(teller, || format!("reports that nothing is left of epoch {epoch}"));
        }
        let connection = self.agents[index].connection;
        for _ in 0..self.copies_of(message) {
            let bytes = wire::encode(epoch, message);
            self.send(connection, Way::FromNode, Parcel::Bytes(bytes));
        }
    }

    /// How often a defective agent would send a message.
    fn copies_of(&self, message: &FromAgent) -> usize {
        let is_twice = matches!(message, FromAgent::Ready(_));
        if is_twice && self.mistake == Some(Mistake::AgentAnswersTwice) { 2 } else { 1 }
    }

    fn report_exit(&mut self, index: usize, report: ExitReport) {
        let ExitReport { epoch, rank, mut exit, at_us, signals_sent, .. } = report;
        if self.mistake == Some(Mistake::SignalIsSuccess)
            && matches!(exit, WorkerExit::Signal { .. })
        {
            exit = WorkerExit::Code(0);
        }
        let exited =
            FromAgent::Exited { rank, exit, at_us, signals_sent, kernel: KernelReport::default() };
        self.send_to_launcher(index, epoch, &exited);
    }

    /// Takes the lock of the node, and then runs the checks.
    fn run_checks(&mut self, index: usize, request: Box<PreflightRequest>) {
        let limits = u64::from(request.prepare.lease_ms) + u64::from(request.prepare.grace_ms);
        let limit = match self.mistake {
            Some(Mistake::AgentIgnoresLease) => self.scenario.lease,
            _ => limits * MS,
        };
        let until = self.now() + limit + SHUTDOWN_MARGIN;
        self.agents[index].epoch = request.epoch;
        self.agents[index].waiting = Some((request, until));
        self.check_lock(index);
    }

    /// Tries to take the lock of the node for an agent.
    pub(super) fn check_lock(&mut self, index: usize) {
        let now = self.now();
        let SimulatedAgent { host, is_alive, ref waiting, .. } = self.agents[index];
        let (Some((_, until)), true) = (waiting, is_alive) else { return };
        let until = *until;
        let is_ignored = self.mistake == Some(Mistake::AgentIgnoresLock);
        let holder = self.hosts[host].lock.filter(|holder| *holder != index && !is_ignored);
        if !holder.is_some_and(|holder| self.agents[holder].holds_lock()) {
            self.hosts[host].lock = Some(index);
            let time = self.check_time(host);
            let epoch = self.agents[index].epoch;
            self.agents[index].has_lock = true;
            return self.after(time, Happening::ChecksEnd { agent: index, epoch });
        }
        if now < until {
            return self.after(LOCK_PAUSE, Happening::LockIsChecked(index));
        }
        let problem = Problem::new(Status::LeaseLost, "another agent of this job is running");
        self.answer_checks(index, Err(vec![problem]));
    }

    /// How long the checks of a node take.
    fn check_time(&mut self, host: usize) -> Micros {
        let slow = self.hosts[host].slow_until.saturating_sub(self.now());
        slow + self.random.between(MS, 300 * MS)
    }

    /// The checks of a node end.
    pub(super) fn end_checks(&mut self, index: usize, epoch: Epoch) {
        let agent = &mut self.agents[index];
        if !agent.is_alive || agent.epoch != epoch {
            return;
        }
        if agent.shim.is_alive {
            agent.shim.has_lock = true;
        }
        let SimulatedHost { refuses, node, .. } = self.hosts[agent.host];
        let result = if refuses {
            Err(vec![Problem::new(Status::NoInput, "no such file")])
        } else {
            let master = MasterEndpoint { addr: "node0".to_owned(), port: 29500 };
            let master = (node.0 == 0).then_some(master);
            Ok(PreparedNode { master, store: None, cpus: 1, notes: Vec::new() })
        };
        self.answer_checks(index, result);
    }

    fn answer_checks(&mut self, index: usize, result: Result<PreparedNode, Vec<Problem>>) {
        self.truth.refusals += u32::from(result.is_err());
        let Some((request, _)) = self.agents[index].waiting.take() else { return };
        let prepare = Box::new(request.prepare);
        self.agents[index].results.push_back(AgentEvent::PreflightDone { prepare, result });
        self.run_agent(index);
    }

    fn request_workers(&mut self, index: usize, request: &StartRequest) -> Option<AgentEvent> {
        let agent = &mut self.agents[index];
        if !agent.shim.is_alive {
            let is_known = agent.knows_shim_exit;
            let step = WorkerStartStep::Fork;
            return (!is_known).then_some(AgentEvent::SpawnFailed { step, errno: EPIPE });
        }
        let ranks = request.start.workers.iter().map(|worker| worker.rank).collect();
        agent.shim.requests.push_back(ShimRequest::Spawn(request.epoch, ranks));
        self.soon(Happening::ShimRuns(index));
        None
    }

    fn request_of_shim(&mut self, index: usize, message: ToShim) {
        self.agents[index].shim.requests.push_back(ShimRequest::Message(message));
        self.soon(Happening::ShimRuns(index));
    }

    fn signal_shim(&mut self, index: usize, signal: i32) {
        match signal {
            SIGCONT => {
                self.agents[index].shim.suspensions = 0;
                self.soon(Happening::ShimRuns(index));
            }
            SIGKILL => self.exit_shim(index),
            _ => {}
        }
    }

    fn inspect_shim(&self, index: usize, check: ShimCheck) -> AgentEvent {
        let shim = &self.agents[index].shim;
        let is_stopped = shim.is_alive && 0 < shim.suspensions;
        let status = if is_stopped { ShimStatus::Stopped } else { ShimStatus::Running };
        AgentEvent::ShimInspected(check, status)
    }

    fn reap_orphans(&mut self, index: usize) -> AgentEvent {
        let left = self.unkillable_of(index);
        self.kill_orphans(index);
        let is_any_killable = self.has_killable(index);
        if is_any_killable {
            return AgentEvent::OrphansLeft;
        }
        let unkillable = vec![wire::Leftover { pid: 1, name: "worker".to_owned() }; left];
        AgentEvent::OrphansReaped { at_us: self.clock_us(self.agents[index].host), unkillable }
    }

    /// Lets an agent exit as soon as its shim has.
    fn finish_agent(&mut self, index: usize) {
        let shim = &self.agents[index].shim;
        if shim.is_alive && 0 < shim.suspensions {
            self.exit_shim(index);
        }
        if self.agents[index].shim.is_alive {
            return;
        }
        self.kill_orphans(index);
        let status = self.agents[index].finishing.expect("it is finishing");
        self.exit_agent(index, Some(WorkerExit::Code(status.code())));
    }

    /// The agent's process exits: its link and its shim notice it.
    pub(super) fn exit_agent(&mut self, index: usize, exit: Option<WorkerExit>) {
        if !std::mem::replace(&mut self.agents[index].is_alive, false) {
            return;
        }
        let SimulatedAgent { host, connection, ref mut shim, .. } = self.agents[index];
        shim.has_agent = false;
        self.tell(Teller::Agent { host, agent: index }, || match exit {
            Some(exit) => format!("exits: {exit}"),
            None => "is gone".to_owned(),
        });
        if !self.agents[index].shim.is_alive {
            // As in `exit_shim`: the process that started the agent kills what both have left.
            self.kill_orphans(index);
        }
        self.close_by_agent(connection, exit);
        self.soon(Happening::ShimRuns(index));
        self.dial_again(host);
    }
}

impl SimulatedAgent {
    /// Whether the agent or its shim holds the lock of the node.
    fn holds_lock(&self) -> bool {
        self.is_alive && self.has_lock || self.shim.is_alive && self.shim.has_lock
    }
}

/// The next message of the launcher, or the end of the link.
fn next_message(agent: &mut SimulatedAgent) -> Option<AgentEvent> {
    match agent.decoder.message() {
        Ok(Some(message)) => {
            let epoch = agent.decoder.epoch().expect("a decoded frame has an epoch");
            Some(AgentEvent::Message { epoch, message })
        }
        Ok(None) if agent.has_link_ended => {
            agent.is_link_readable = false;
            Some(AgentEvent::LinkEnded)
        }
        Ok(None) => {
            agent.is_link_readable = false;
            None
        }
        Err(why) => Some(AgentEvent::ProtocolError(why.to_string())),
    }
}

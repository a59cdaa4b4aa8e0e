//! State of an agent and [`AgentState::step`], the only place where it changes. The other files of
//! this module handle the events.

use std::time::{Duration, Instant};

use super::event::{AgentEffect, AgentEvent};
use super::group_watch::GroupWatch;
use super::shim_heartbeat::ShimHeartbeat;
use super::timers::{Timer, Timers};
use super::workers::WorkerTable;
use crate::agent::shim::ToShim;
use crate::base::{Epoch, JobId, NodeRank, Status};
use crate::runtime::contract::ToWorker;
use crate::wire::{FromAgent, Leftover, NodeRoster, Prepare, ToAgent};

pub(super) const SIGKILL: i32 = 9;
pub(super) const SIGTERM: i32 = 15;
pub(super) const SIGCONT: i32 = 18;
pub(super) const SIGSTOP: i32 = 19;

/// Interval of the agent's heartbeats until the lease is known.
pub(super) const INITIAL_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// One agent, from its start to its exit.
pub struct AgentState {
    pub(super) job: JobId,
    pub(super) node: NodeRank,
    pub(super) epoch: Epoch,
    /// The launcher; `None` after it was lost.
    pub(super) launcher: Option<Launcher>,
    pub(super) terms: Terms,
    pub(super) phase: AgentPhase,
    /// The nodes of the epoch, from the message that lists them until the start.
    pub(super) roster: Option<NodeRoster>,
    pub(super) workers: WorkerTable,
    /// The processes that could not be killed; `Some` once no other process of the job is left.
    pub(super) unkillable: Option<Vec<Leftover>>,
    pub(super) shim: ShimPhase,
    pub(super) shim_heartbeat: ShimHeartbeat,
    /// The check whether the workers connect to each other, until it is decided.
    pub(super) group_watch: Option<GroupWatch>,
    pub(super) timers: Timers,
    /// The agent's exit status if it is not success.
    pub(super) failure: Option<Status>,
    /// Whether the launcher released the agent.
    is_released: bool,
    /// Effects of the current step.
    effects: Vec<AgentEffect>,
}

/// What the agent knows about its launcher.
pub(super) struct Launcher {
    /// When its last message was received.
    pub(super) last_message_at: Instant,
    /// Whether it has announced that it will be suspended.
    pub(super) is_paused: bool,
}

/// Time limits set by the launcher.
pub(super) struct Terms {
    /// Time without a message of the launcher after which the workers are stopped.
    pub(super) lease: Option<Duration>,
    /// Interval of the agent's heartbeats.
    pub(super) heartbeat: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

/// Progress of the job on this node.
pub(super) enum AgentPhase {
    /// The preflight checks were not requested in this epoch, or have not passed.
    Waiting,
    /// The preflight checks of this request have passed.
    Ready(Box<Prepare>),
    /// The start of the workers was requested.
    Started,
}

/// Phase of the shim process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShimPhase {
    /// It has not exited.
    Alive,
    /// It has exited, and the processes that it left are being killed.
    Reaping,
    /// None of its processes is left.
    Gone,
}

impl AgentState {
    /// Creates an agent that has a shim and a link to its launcher.
    pub fn new(now: Instant) -> Self {
        let mut timers = Timers::default();
        timers.set(now + INITIAL_HEARTBEAT_INTERVAL, Timer::Heartbeat);
        Self {
            job: JobId(String::new()),
            node: NodeRank(0),
            epoch: Epoch(0),
            launcher: Some(Launcher { last_message_at: now, is_paused: false }),
            terms: Terms {
                lease: None,
                heartbeat: INITIAL_HEARTBEAT_INTERVAL,
                grace: Duration::ZERO,
            },
            phase: AgentPhase::Waiting,
            roster: None,
            workers: WorkerTable::default(),
            unkillable: None,
            shim: ShimPhase::Alive,
            shim_heartbeat: ShimHeartbeat::default(),
            group_watch: None,
            timers,
            failure: None,
            is_released: false,
            effects: Vec::new(),
        }
    }

    /// The agent's exit status, once it is to exit: the launcher released it, or was lost and no
    /// process of the job is left.
    pub fn exit_status(&self) -> Option<Status> {
        let has_workers = self.unkillable.is_none() && !self.workers.is_empty();
        let is_over = self.is_released || self.launcher.is_none() && !has_workers;
        is_over.then(|| self.failure.unwrap_or(Status::Success))
    }

    /// Applies an event to the agent and returns the effects: the only place where the agent
    /// changes.
    pub fn step(&mut self, now: Instant, event: AgentEvent) -> Vec<AgentEffect> {
        if self.exit_status().is_some() {
            return Vec::new();
        }
        match event {
            AgentEvent::Message { epoch, message } => self.on_message(now, epoch, message),
            AgentEvent::LinkEnded => self.on_launcher_lost(now),
            AgentEvent::ProtocolError(why) => self.on_protocol_error(now, &why),
            AgentEvent::ShimMessage { message, descriptors } => {
                self.on_shim_message(now, message, descriptors);
            }
            AgentEvent::ShimExited => self.on_shim_exit(),
            AgentEvent::ShimInspected(check, status) => {
                self.on_shim_inspected(now, check, status);
            }
            AgentEvent::OrphansLeft => self.on_orphans_left(now),
            AgentEvent::OrphansReaped { at_us, unkillable } => {
                self.on_orphans_reaped(now, at_us, unkillable);
            }
            AgentEvent::StreamEnded { worker, stream, is_held_open } => {
                self.on_stream_ended(worker, stream, is_held_open);
            }
            AgentEvent::PreflightDone { prepare, result } => {
                self.on_preflight_done(prepare, result);
            }
            AgentEvent::SpawnFailed { step, errno } => self.on_spawn_failed(step, errno),
            AgentEvent::Examined(report) => self.send(FromAgent::Examined(report)),
            AgentEvent::Probed(results) => self.send(FromAgent::Probed(results)),
            AgentEvent::SuspendedFound(ranks) => self.send(FromAgent::Suspended(ranks)),
            AgentEvent::GroupChecked { epoch, check } => self.on_group_checked(now, epoch, check),
            AgentEvent::Timer => self.on_timer(now),
        }
        self.push(AgentEffect::Wake(self.timers.next()));
        std::mem::take(&mut self.effects)
    }

    /// Handles a message of the launcher.
    fn on_message(&mut self, now: Instant, epoch: Epoch, message: ToAgent) {
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        launcher.last_message_at = now;
        match message {
            ToAgent::Hello(hello) => {
                (self.epoch, self.job, self.node) = (epoch, JobId(hello.job), hello.node);
                self.push(AgentEffect::SendHello(epoch));
            }
            ToAgent::Prepare(prepare) => self.start_preflight(now, *prepare),
            ToAgent::Roster(bytes) => match NodeRoster::unpack(&bytes) {
                Ok(roster) => self.roster = Some(roster),
                Err(why) => self.on_protocol_error(now, &why.to_string()),
            },
            ToAgent::Start(start) => self.start_workers(now, start),
            ToAgent::Signal(signal) => self.signal_workers(signal),
            ToAgent::Kill => self.kill_workers(),
            ToAgent::Stdin { rank, bytes } => self.push(AgentEffect::WriteStdin { rank, bytes }),
            ToAgent::PeerGone(rank) => {
                self.push(AgentEffect::Broadcast(ToWorker::PeerGone { rank }));
            }
            ToAgent::Consumed(bytes) => self.push(AgentEffect::AcknowledgeOutput(bytes)),
            ToAgent::Heartbeat { at_us } => {
                self.push(AgentEffect::SendClock { epoch: self.epoch, sent_us: at_us });
            }
            ToAgent::ReportSuspended => {
                self.push(AgentEffect::FindSuspended(self.workers.live()));
            }
            ToAgent::Bye => self.is_released = true,
            ToAgent::NextEpoch => self.begin_next_epoch(now),
            ToAgent::SkipToEpoch(epoch) => self.skip_to_epoch(now, epoch),
            ToAgent::Examine(request) => self.push(AgentEffect::Examine(request)),
            ToAgent::Probe(listeners) => self.push(AgentEffect::Probe(listeners)),
            ToAgent::Pause => self.pause(),
            ToAgent::Resume => self.resume(),
        }
    }

    /// Handles every timer that is due.
    fn on_timer(&mut self, now: Instant) {
        while let Some((at, timer)) = self.timers.due(now) {
            match timer {
                Timer::Heartbeat => self.on_heartbeat_due(now, at),
                Timer::HeldStream(worker) => self.push(AgentEffect::CancelStreams(worker)),
                Timer::Linger(worker) => self.terminate_leftovers(worker, true),
                Timer::KillLeftovers(worker) => {
                    self.send_to_shim(ToShim::KillLeftovers { worker: worker as u32 });
                }
                Timer::KillWorkers => self.kill_workers(),
                Timer::KillCheck => self.check_kill(),
                Timer::Reap => self.push(AgentEffect::ReapOrphans),
                Timer::GroupCheck => self.check_group(now),
            }
        }
    }

    /// Adds an effect of the current step.
    pub(super) fn push(&mut self, effect: AgentEffect) {
        self.effects.push(effect);
    }

    /// Sends a message to the launcher. A launcher that was lost and responds late must not
    /// attribute the exits that the agent now causes to the workers.
    pub(super) fn send(&mut self, message: FromAgent) {
        if self.launcher.is_some() {
            self.push(AgentEffect::Send { epoch: self.epoch, message });
        }
    }

    /// Sends a message to the shim, unless it has exited.
    pub(super) fn send_to_shim(&mut self, message: ToShim) {
        if self.shim == ShimPhase::Alive {
            self.push(AgentEffect::SendToShim(message));
        }
    }
}

//! The agent's event loop: waits for one event and handles it. The handlers are in the other files
//! of this module.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::alarms::{Timer, Timers};
use super::crew::{StreamEnded, WorkerTable};
use super::error_files::ErrorFiles;
use super::group_watch::{GroupCheck, GroupWatch};
use super::launcher::{INITIAL_HEARTBEAT_INTERVAL, LauncherLink, Terms, next_message};
use super::output::Outbox;
use super::place::InstanceLock;
use super::prepare::Prepared;
use super::shim::{FromShim, Shim, ToShim};
use super::shim_heartbeat::ShimHeartbeat;
use super::shim_lost::{ShimState, next_shim_message};
use super::starting::{AgentPhase, agent_hello};
use super::{doors, exam};
use crate::base::{Epoch, JobId, NodeRank, Status, clock};
use crate::os::family;
use crate::os::ports::PortClaim;
use crate::os::tasks::Tasks;
use crate::os::{fds, signals};
use crate::report;
use crate::runtime::contract::ToWorker;
use crate::transport::{self, LinkReader, LinkWriter, ssh};
use crate::wire::{
    Examine, FrameError, FromAgent, Leftover, NodeRoster, Prepare, Problem, ToAgent,
};

/// Time limit for the exit of a helper process that was killed. A process that is blocked by its
/// file system is not waited for any longer.
const HELPER_KILL_LIMIT: Duration = Duration::from_millis(500);

/// What started this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentOrigin {
    /// The launcher itself: the link begins with the first byte.
    Launcher,
    /// A login shell, which may have printed something first.
    Shell,
    /// A login shell, and this executable was just copied to this node.
    Pushed,
}

/// The process `remuda agent`: serves the link on its standard input and output until it ends.
pub fn main(origin: AgentOrigin) -> Status {
    fds::make_stderr_nonblocking();
    report::install_panic_hook("remuda agent");
    family::set_name(c"remuda-agent");
    signals::reset_sigchld();
    family::become_subreaper();
    signals::block_requests();
    // Fork before any thread is started.
    let started = Shim::fork().and_then(|shim| Ok((shim, transport::adopt_stdio()?)));
    let Ok((shim, (input, output))) = started else {
        return Status::OsLimit;
    };
    if origin != AgentOrigin::Launcher && begin_link(origin, &output).is_err() {
        return Status::Io;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let Ok(runtime) = runtime else {
        return Status::OsLimit;
    };
    // Unwinding closes the connection to the shim, which then kills the workers.
    let served = AssertUnwindSafe(|| runtime.block_on(serve(input, output, shim)));
    let served = std::panic::catch_unwind(served);
    // A thread that is blocked by a hanging file system is not waited for.
    runtime.shutdown_background();
    match served {
        Ok(Ok(status)) => status,
        Ok(Err(_)) => Status::Io,
        Err(_) => Status::Bug,
    }
}

/// After a start by a shell: leaves its directory, and announces that the link begins.
fn begin_link(origin: AgentOrigin, output: &OwnedFd) -> io::Result<()> {
    rustix::process::chdir("/")?;
    ssh::announce_ready(output)?;
    if origin == AgentOrigin::Pushed {
        ssh::prune_cache(clock::wall());
    }
    Ok(())
}

async fn serve(input: OwnedFd, output: OwnedFd, shim: Shim) -> io::Result<Status> {
    let mut tasks = Tasks::default();
    let (event_sender, event_receiver) = mpsc::unbounded_channel();
    let outbox = Arc::new(Outbox::new(LinkWriter::new(output)?, &mut tasks));
    let stream_events = event_sender.clone();
    let on_stream_end = Arc::new(move |ended| {
        let _ = stream_events.send(InternalEvent::StreamEnded(ended));
    });
    let mut agent = Agent {
        launcher: Some(LauncherLink::new(LinkReader::new(input)?)),
        workers: WorkerTable::new(Arc::clone(&outbox), on_stream_end),
        outbox,
        tasks,
        shim: ShimState::Alive(shim.watch()?),
        shim_heartbeat: ShimHeartbeat::default(),
        phase: AgentPhase::Waiting,
        terms: Terms { lease: None, heartbeat: INITIAL_HEARTBEAT_INTERVAL, grace: Duration::ZERO },
        job: JobId(String::new()),
        gpu_locks: Vec::new(),
        port: None,
        node: NodeRank(0),
        instance_lock: None,
        shim_has_lock: false,
        roster: None,
        error_files: None,
        unkillable: None,
        group_watch: None,
        failure: None,
        timers: Timers::default(),
        event_sender,
        event_receiver,
    };
    agent.timers.set(clock::now() + INITIAL_HEARTBEAT_INTERVAL, Timer::Heartbeat);
    while agent.handle_next_event().await {}
    agent.stop_shim();
    // Kills a script or an interpreter that was still running when the job ended.
    family::kill_descendants(HELPER_KILL_LIMIT, |_, _| {});
    Ok(agent.failure.unwrap_or(Status::Success))
}

/// State of the agent, and the handlers of its events.
pub(super) struct Agent {
    /// The connection to the launcher; `None` after it was lost.
    pub(super) launcher: Option<LauncherLink>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) tasks: Tasks,
    pub(super) shim: ShimState,
    pub(super) shim_heartbeat: ShimHeartbeat,
    pub(super) phase: AgentPhase,
    pub(super) terms: Terms,
    pub(super) job: JobId,
    pub(super) node: NodeRank,
    /// The lock of this node, held since the first preflight checks.
    pub(super) instance_lock: Option<InstanceLock>,
    /// Whether the shim holds the lock too.
    pub(super) shim_has_lock: bool,
    /// The nodes of the epoch, from the message that lists them until the start.
    pub(super) roster: Option<NodeRoster>,
    pub(super) workers: WorkerTable,
    /// The port of rank 0, claimed while `remuda doctor` checks it.
    pub(super) port: Option<PortClaim>,
    /// Locks of GPUs, of this epoch and of earlier ones.
    pub(super) gpu_locks: Vec<OwnedFd>,
    /// Directory of the workers' error files, created at the first start.
    pub(super) error_files: Option<ErrorFiles>,
    /// The processes that could not be killed; `Some` once no other process of the job is left.
    pub(super) unkillable: Option<Vec<Leftover>>,
    /// The check whether the workers connect to each other, until it is decided.
    pub(super) group_watch: Option<GroupWatch>,
    /// The agent's exit status if it is not success.
    pub(super) failure: Option<Status>,
    pub(super) timers: Timers,
    pub(super) event_sender: mpsc::UnboundedSender<InternalEvent>,
    pub(super) event_receiver: mpsc::UnboundedReceiver<InternalEvent>,
}

/// An event from one of the agent's own tasks.
pub(super) enum InternalEvent {
    StreamEnded(StreamEnded),
    PreflightDone(Box<PreflightDone>),
    ExaminationDone(Box<exam::HeldReport>),
    /// Result of a check in this epoch: which libraries the workers have mapped, and their sockets.
    GroupChecked(Epoch, GroupCheck),
}

/// The event that the preflight checks are finished, with their result.
pub(super) struct PreflightDone {
    pub(super) prepare: Prepare,
    pub(super) instance_lock: Option<InstanceLock>,
    pub(super) result: Result<Prepared, Vec<Problem>>,
}

/// One event of the agent's loop.
enum AgentEvent {
    Message(ToAgent),
    LauncherGone,
    ProtocolError(FrameError),
    ShimMessage(FromShim, Vec<OwnedFd>),
    ShimExited,
    Internal(InternalEvent),
    TimerDue,
}

impl Agent {
    /// Waits for one event and handles it; false when the agent is to exit.
    async fn handle_next_event(&mut self) -> bool {
        match self.next_event().await {
            AgentEvent::Message(ToAgent::Bye) => return false,
            AgentEvent::Message(message) => self.on_launcher_message(message),
            AgentEvent::LauncherGone => self.on_launcher_lost(),
            AgentEvent::ProtocolError(why) => self.on_protocol_error(&why.to_string()),
            AgentEvent::ShimMessage(message, fds) => self.on_shim_message(message, fds),
            AgentEvent::ShimExited => self.on_shim_exit(),
            AgentEvent::Internal(InternalEvent::StreamEnded(ended)) => {
                self.workers.record_stream_end(&ended);
                self.report_if_idle();
            }
            AgentEvent::Internal(InternalEvent::PreflightDone(done)) => {
                self.on_preflight_done(*done);
            }
            AgentEvent::Internal(InternalEvent::ExaminationDone(found)) => self.send_report(*found),
            AgentEvent::Internal(InternalEvent::GroupChecked(epoch, check)) => {
                self.on_group_checked(epoch, check);
            }
            AgentEvent::TimerDue => self.run_due_timers(),
        }
        self.launcher.is_some() || self.unkillable.is_none() && !self.workers.is_empty()
    }

    async fn next_event(&mut self) -> AgentEvent {
        let wake = tokio::time::sleep_until(self.timers.next().into());
        tokio::select! {
            message = next_message(self.launcher.as_mut()) => match message {
                Ok(Some(message)) => AgentEvent::Message(message),
                Ok(None) => AgentEvent::LauncherGone,
                Err(why) => AgentEvent::ProtocolError(why),
            },
            packet = next_shim_message(&self.shim) => match packet {
                Some((message, fds)) => AgentEvent::ShimMessage(message, fds),
                None => AgentEvent::ShimExited,
            },
            Some(inner) = self.event_receiver.recv() => AgentEvent::Internal(inner),
            () = wake => AgentEvent::TimerDue,
            never = self.tasks.propagate_panics() => match never {},
        }
    }

    /// Handles a message of the launcher.
    fn on_launcher_message(&mut self, message: ToAgent) {
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        launcher.last_message_at = clock::now();
        match message {
            ToAgent::Hello(hello) => {
                let epoch = launcher.decoder.epoch().expect("a decoded frame has an epoch");
                self.outbox = Arc::new(self.outbox.for_epoch(epoch));
                self.workers.set_outbox(Arc::clone(&self.outbox));
                self.job = JobId(hello.job);
                self.node = hello.node;
                self.outbox.send(&FromAgent::Hello(agent_hello()));
            }
            ToAgent::Prepare(prepare) => self.start_preflight(*prepare),
            ToAgent::Roster(bytes) => match NodeRoster::unpack(&bytes) {
                Ok(roster) => self.roster = Some(roster),
                Err(why) => self.on_protocol_error(&why.to_string()),
            },
            ToAgent::Start(start) => self.start_workers(&start),
            ToAgent::Signal(signal) => self.signal_workers(signal),
            ToAgent::Kill => self.kill_workers(),
            ToAgent::Stdin { rank, bytes } => self.workers.send_stdin(rank, bytes),
            ToAgent::PeerGone(rank) => self.workers.broadcast(&ToWorker::PeerGone { rank }),
            ToAgent::Consumed(bytes) => {
                if !self.workers.acknowledge(bytes) {
                    self.on_protocol_error("acknowledged more output than was sent");
                }
            }
            ToAgent::Heartbeat { at_us } => {
                let clock_us = clock::machine_us();
                self.outbox.send(&FromAgent::Clock { sent_us: at_us, clock_us });
            }
            ToAgent::ReportSuspended => {
                self.outbox.send(&FromAgent::Suspended(self.workers.suspended()));
            }
            ToAgent::Bye => {}
            ToAgent::NextEpoch => self.begin_next_epoch(),
            ToAgent::SkipToEpoch(epoch) => self.skip_to_epoch(epoch),
            ToAgent::Examine(request) => self.start_examination(*request),
            ToAgent::Probe(listeners) => {
                let outbox = Arc::clone(&self.outbox);
                self.tasks.spawn(async move {
                    outbox.send(&FromAgent::Probed(doors::probe_all(listeners).await));
                });
            }
            ToAgent::Pause => {
                launcher.paused = true;
                self.signal_workers(libc::SIGSTOP);
                self.outbox.send(&FromAgent::Paused);
            }
            ToAgent::Resume => {
                launcher.paused = false;
                self.signal_workers(libc::SIGCONT);
            }
        }
    }

    /// Collects the facts on its own thread, because file systems, drivers and interpreters may be
    /// slow.
    fn start_examination(&mut self, request: Examine) {
        let events = self.event_sender.clone();
        self.tasks.spawn_blocking(move || {
            let _ = events
                .send(InternalEvent::ExaminationDone(Box::new(exam::collect_facts(&request))));
        });
    }

    /// Sends the report once the listeners that it names accept connections.
    fn send_report(&mut self, found: exam::HeldReport) {
        for (listener, token) in found.listeners {
            self.tasks.spawn(doors::serve_probes(listener, token));
        }
        self.port = found.port;
        self.outbox.send(&FromAgent::Examined(Box::new(found.report)));
    }

    /// Sends a message to the shim, unless it has exited.
    pub(super) fn send_to_shim(&self, message: &ToShim) {
        if let ShimState::Alive(shim) = &self.shim {
            shim.send(message);
        }
    }

    /// Handles every timer that is due.
    fn run_due_timers(&mut self) {
        while let Some((at, timer)) = self.timers.due(clock::now()) {
            match timer {
                Timer::Heartbeat => self.on_heartbeat_due(at),
                Timer::HeldStream(worker) => self.workers.cancel_streams(worker),
                Timer::Linger(worker) => self.terminate_leftovers(worker, true),
                Timer::KillLeftovers(worker) => {
                    self.send_to_shim(&ToShim::KillLeftovers { worker: worker as u32 });
                }
                Timer::KillWorkers => self.kill_workers(),
                Timer::KillCheck => self.check_kill(),
                Timer::Reap => self.reap_orphans(),
                Timer::GroupCheck => self.check_group(),
            }
        }
    }
}

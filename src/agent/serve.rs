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
use super::group_watch::{GroupWatch, Sighting};
use super::launcher::{FIRST_BEAT, LauncherLink, Terms, next_message};
use super::output::Outbox;
use super::place::InstanceLock;
use super::prepare::Prepared;
use super::shim::{FromShim, Shim, ToShim};
use super::shim_heartbeat::ShimHeartbeat;
use super::shim_lost::{ShimState, next_packet};
use super::starting::{AgentPhase, our_hello};
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
const ASKED_END_LIMIT: Duration = Duration::from_millis(500);

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
    fds::never_wait_for_stderr();
    report::explain_panics("remuda agent");
    family::set_name(c"remuda-agent");
    signals::hear_of_children();
    family::become_subreaper();
    signals::block_requests();
    // Fork before any thread is started.
    let started = Shim::fork().and_then(|shim| Ok((shim, transport::adopt_stdio()?)));
    let Ok((shim, (input, output))) = started else {
        return Status::OsLimit;
    };
    if origin != AgentOrigin::Launcher && arrive(origin, &output).is_err() {
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
fn arrive(origin: AgentOrigin, output: &OwnedFd) -> io::Result<()> {
    rustix::process::chdir("/")?;
    ssh::announce(output)?;
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
        crew: WorkerTable::new(Arc::clone(&outbox), on_stream_end),
        outbox,
        tasks,
        shim: ShimState::Lives(shim.watch()?),
        shim_heartbeat: ShimHeartbeat::default(),
        phase: AgentPhase::Greeting,
        terms: Terms { lease: None, beat: FIRST_BEAT, grace: Duration::ZERO },
        job: JobId(String::new()),
        claims: Vec::new(),
        port: None,
        node: NodeRank(0),
        place: None,
        shim_has_place: false,
        roster: None,
        error_files: None,
        undead: None,
        group_watch: None,
        failure: None,
        alarms: Timers::default(),
        told: event_sender,
        inner: event_receiver,
    };
    agent.alarms.set(clock::now() + FIRST_BEAT, Timer::Beat);
    while agent.turn().await {}
    agent.dismiss_shim();
    // Kills a script or an interpreter that was still running when the job ended.
    family::kill_descendants(ASKED_END_LIMIT, |_, _| {});
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
    pub(super) place: Option<InstanceLock>,
    /// Whether the shim holds the lock too.
    pub(super) shim_has_place: bool,
    /// The nodes of the epoch, from the message that lists them until the start.
    pub(super) roster: Option<NodeRoster>,
    pub(super) crew: WorkerTable,
    /// The port of rank 0, claimed while `remuda doctor` checks it.
    pub(super) port: Option<PortClaim>,
    /// Locks of GPUs, of this epoch and of earlier ones.
    pub(super) claims: Vec<OwnedFd>,
    /// Directory of the workers' error files, created at the first start.
    pub(super) error_files: Option<ErrorFiles>,
    /// The processes that could not be killed; `Some` once no other process of the job is left.
    pub(super) undead: Option<Vec<Leftover>>,
    /// The check whether the workers connect to each other, until it is decided.
    pub(super) group_watch: Option<GroupWatch>,
    /// The agent's exit status if it is not success.
    pub(super) failure: Option<Status>,
    pub(super) alarms: Timers,
    pub(super) told: mpsc::UnboundedSender<InternalEvent>,
    pub(super) inner: mpsc::UnboundedReceiver<InternalEvent>,
}

/// An event from one of the agent's own tasks.
pub(super) enum InternalEvent {
    StreamEnded(StreamEnded),
    Examined(Box<ExaminationDone>),
    Reported(Box<exam::HeldReport>),
    /// Result of a check in this epoch: which libraries the workers have mapped, and their sockets.
    GroupSeen(Epoch, Sighting),
}

/// The event that the preflight checks are finished, with their result.
pub(super) struct ExaminationDone {
    pub(super) prepare: Prepare,
    pub(super) place: Option<InstanceLock>,
    pub(super) result: Result<Prepared, Vec<Problem>>,
}

/// One event of the agent's loop.
enum Turn {
    Told(ToAgent),
    LauncherGone,
    NotUnderstood(FrameError),
    Shim(FromShim, Vec<OwnedFd>),
    ShimDied,
    Inner(InternalEvent),
    Alarm,
}

impl Agent {
    /// Waits for one event and handles it; false when the agent is to exit.
    async fn turn(&mut self) -> bool {
        match self.next().await {
            Turn::Told(ToAgent::Bye) => return false,
            Turn::Told(message) => self.obey(message),
            Turn::LauncherGone => self.launcher_gone(),
            Turn::NotUnderstood(why) => self.not_understood(&why.to_string()),
            Turn::Shim(message, fds) => self.hear_shim(message, fds),
            Turn::ShimDied => self.shim_died(),
            Turn::Inner(InternalEvent::StreamEnded(ended)) => {
                self.crew.stream_ended(&ended);
                self.report_if_idle();
            }
            Turn::Inner(InternalEvent::Examined(done)) => self.examined(*done),
            Turn::Inner(InternalEvent::Reported(found)) => self.report(*found),
            Turn::Inner(InternalEvent::GroupSeen(epoch, check)) => self.group_seen(epoch, check),
            Turn::Alarm => self.ring(),
        }
        self.launcher.is_some() || self.undead.is_none() && !self.crew.is_empty()
    }

    async fn next(&mut self) -> Turn {
        let wake = tokio::time::sleep_until(self.alarms.next().into());
        tokio::select! {
            message = next_message(self.launcher.as_mut()) => match message {
                Ok(Some(message)) => Turn::Told(message),
                Ok(None) => Turn::LauncherGone,
                Err(why) => Turn::NotUnderstood(why),
            },
            packet = next_packet(&self.shim) => match packet {
                Some((message, fds)) => Turn::Shim(message, fds),
                None => Turn::ShimDied,
            },
            Some(inner) = self.inner.recv() => Turn::Inner(inner),
            () = wake => Turn::Alarm,
            never = self.tasks.watch() => match never {},
        }
    }

    /// Handles a message of the launcher.
    fn obey(&mut self, message: ToAgent) {
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        launcher.heard = clock::now();
        match message {
            ToAgent::Hello(hello) => {
                let epoch = launcher.decoder.epoch().expect("a decoded frame has an epoch");
                self.outbox = Arc::new(self.outbox.of(epoch));
                self.crew.speak(Arc::clone(&self.outbox));
                self.job = JobId(hello.job);
                self.node = hello.node;
                self.outbox.send(&FromAgent::Hello(our_hello()));
            }
            ToAgent::Prepare(prepare) => self.prepare(*prepare),
            ToAgent::Roster(bytes) => match NodeRoster::unpack(&bytes) {
                Ok(roster) => self.roster = Some(roster),
                Err(why) => self.not_understood(&why.to_string()),
            },
            ToAgent::Start(start) => self.start(&start),
            ToAgent::Signal(signal) => self.signal_workers(signal),
            ToAgent::Kill => self.kill_workers(),
            ToAgent::Stdin { rank, bytes } => self.crew.feed(rank, bytes),
            ToAgent::PeerGone(rank) => self.crew.tell(&ToWorker::PeerGone { rank }),
            ToAgent::Consumed(bytes) => {
                if !self.crew.acknowledge(bytes) {
                    self.not_understood("acknowledged more output than was sent");
                }
            }
            ToAgent::Beat { at_us } => {
                let clock_us = clock::machine_us();
                self.outbox.send(&FromAgent::Clock { asked_us: at_us, clock_us });
            }
            ToAgent::Look => self.outbox.send(&FromAgent::Suspended(self.crew.suspended())),
            ToAgent::Bye => {}
            ToAgent::Renew => self.renew(),
            ToAgent::Skip(epoch) => self.skip(epoch),
            ToAgent::Examine(request) => self.examine(*request),
            ToAgent::Dial(listeners) => {
                let outbox = Arc::clone(&self.outbox);
                self.tasks.spawn(async move {
                    outbox.send(&FromAgent::Dialed(doors::knock_at(listeners).await));
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
    fn examine(&mut self, request: Examine) {
        let events = self.told.clone();
        self.tasks.spawn_blocking(move || {
            let _ = events.send(InternalEvent::Reported(Box::new(exam::examine(&request))));
        });
    }

    /// Sends the report once the listeners that it names accept connections.
    fn report(&mut self, found: exam::HeldReport) {
        for (listener, token) in found.doors {
            self.tasks.spawn(doors::wait_at(listener, token));
        }
        self.port = found.port;
        self.outbox.send(&FromAgent::Examined(Box::new(found.report)));
    }

    /// Sends a message to the shim, unless it has exited.
    pub(super) fn tell_shim(&self, message: &ToShim) {
        if let ShimState::Lives(shim) = &self.shim {
            shim.send(message);
        }
    }

    /// Handles every timer that is due.
    fn ring(&mut self) {
        while let Some((at, timer)) = self.alarms.due(clock::now()) {
            match timer {
                Timer::Beat => self.beat(at),
                Timer::Held(worker) => self.crew.let_go(worker),
                Timer::Linger(worker) => self.sweep(worker, true),
                Timer::Sweep(worker) => {
                    self.tell_shim(&ToShim::KillLeftovers { worker: worker as u32 });
                }
                Timer::Orphaned => self.kill_workers(),
                Timer::Killing => self.watch_kill(),
                Timer::Bury => self.bury(),
                Timer::Group => self.look_for_group(),
            }
        }
    }
}

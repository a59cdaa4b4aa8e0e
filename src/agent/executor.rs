//! Performs the effects of the agent's state machine: owns the link, the shim, the workers' pipes
//! and everything else that the agent holds. Decides nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::connectivity;
use super::diagnostics::{self, HeldReport};
use super::error_files::{ErrorFiles, WrittenError};
use super::flow_control::OutputWindow;
use super::group_check::check_group;
use super::instance_lock::{self, InstanceLock};
use super::launcher_link::LauncherLink;
use super::ports::Listening;
use super::preflight::{self, Prepared};
use super::shim::{FromShim, Shim, ShimProcess};
use super::state::{
    AgentEffect, AgentEvent, ExitReport, PreflightRequest, ShimCheck, ShimStatus, StartRequest,
};
use super::uplink::Uplink;
use super::worker_io::WorkerChannels;
use super::worker_start::{self, SpawnError, StartedWorkers};
use crate::base::{Epoch, Rank, WorkerExit, clock};
use crate::os::cpu::text_pages;
use crate::os::net::ports::PortClaim;
use crate::os::process::process_tree::{self, Stat};
use crate::os::tasks::Tasks;
use crate::transport::{LinkReader, LinkWriter};
use crate::wire::{
    self, AgentHello, Examine, FromAgent, KernelReport, Prepare, PreparedNode, Problem,
};
use crate::{inventory, report};

/// Time limit for the exit of a helper process that was killed. A process that is blocked by its
/// file system is not waited for any longer.
const HELPER_KILL_LIMIT: Duration = Duration::from_millis(500);

/// What the agent holds, and what its event loop waits for.
pub(super) struct AgentExecutor {
    /// The receiving side of the link; `None` once it is closed.
    pub(super) link: Option<LauncherLink>,
    pub(super) shim: ShimProcess,
    pub(super) tasks: Tasks,
    /// Results of the agent's own tasks.
    pub(super) results: mpsc::UnboundedReceiver<TaskResult>,
    /// When the event loop wakes the state machine.
    pub(super) wake_at: Instant,
    result_sender: mpsc::UnboundedSender<TaskResult>,
    uplink: Uplink,
    workers: WorkerChannels,
    /// Descriptors that came with the newest message of the shim.
    received_fds: Vec<OwnedFd>,
    /// The lock of this node, held since the first preflight checks.
    instance_lock: Option<InstanceLock>,
    /// Whether the shim holds the lock too.
    shim_has_lock: bool,
    /// Results of the preflight checks that passed, until the start.
    prepared: Option<Prepared>,
    /// What stays open as long as a worker of the epoch may run.
    started: Option<StartedWorkers>,
    /// Locks of GPUs, of this epoch and of earlier ones.
    gpu_locks: Vec<OwnedFd>,
    /// The port of rank 0, claimed while `remuda doctor` checks it.
    port: Option<PortClaim>,
    /// Directory of the workers' error files, created at the first start.
    error_files: Option<ErrorFiles>,
}

/// Result of one of the agent's own tasks.
pub(super) enum TaskResult {
    /// An event without descriptors.
    Event(AgentEvent),
    Preflight(Box<PreflightResult>),
    Examination(Box<HeldReport>),
}

/// Result of the preflight checks.
pub(super) struct PreflightResult {
    prepare: Prepare,
    instance_lock: Option<InstanceLock>,
    result: Result<Prepared, Vec<Problem>>,
}

impl AgentExecutor {
    /// Takes over the link and the shim. Must be called inside a runtime.
    pub(super) fn new(input: OwnedFd, output: OwnedFd, shim: Shim) -> io::Result<Self> {
        let mut tasks = Tasks::default();
        // Holds one result for each preflight check and each stream of a worker.
        let (result_sender, results) = mpsc::unbounded_channel();
        let stream_events = result_sender.clone();
        Ok(Self {
            link: Some(LauncherLink::new(LinkReader::new(input)?)),
            shim: ShimProcess::watch(shim)?,
            uplink: Uplink::new(LinkWriter::new(output)?, &mut tasks),
            workers: WorkerChannels::new(move |event| {
                let _ = stream_events.send(TaskResult::Event(event));
            }),
            tasks,
            results,
            wake_at: clock::now(),
            result_sender,
            received_fds: Vec::new(),
            instance_lock: None,
            shim_has_lock: false,
            prepared: None,
            started: None,
            gpu_locks: Vec::new(),
            port: None,
            error_files: None,
        })
    }

    /// Performs an effect; returns the answer if there is one at once.
    pub(super) fn perform(&mut self, effect: AgentEffect) -> Option<AgentEvent> {
        match effect {
            AgentEffect::Send { epoch, message } => self.uplink.send(epoch, &message),
            AgentEffect::SendHello(epoch) => self.send_hello(epoch),
            AgentEffect::SendClock { epoch, sent_us } => {
                let clock_us = clock::machine_us();
                self.uplink.send(epoch, &FromAgent::Clock { sent_us, clock_us });
            }
            AgentEffect::BeginEpoch(epoch) => self.begin_epoch(epoch),
            AgentEffect::CloseLink => {
                self.link = None;
                self.window().close();
            }
            AgentEffect::RunPreflight(request) => self.run_preflight(*request),
            AgentEffect::StartWorkers(request) => return self.start_workers(&request),
            AgentEffect::AttachWorker { worker, epoch } => self.attach_worker(worker, epoch),
            AgentEffect::DetachWorker(worker) => self.workers.detach(worker),
            AgentEffect::ReportExit(report) => self.report_exit(report),
            AgentEffect::CancelStreams(worker) => self.workers.cancel_streams(worker),
            AgentEffect::Broadcast(message) => self.workers.broadcast(&message),
            AgentEffect::WriteStdin { rank, bytes } => self.workers.send_stdin(rank, bytes),
            AgentEffect::OpenWindow(bytes_max) => self.window().open(bytes_max),
            AgentEffect::AcknowledgeOutput(bytes) => {
                let why = "acknowledged more output than was sent";
                let is_valid = self.window().acknowledge(bytes);
                return (!is_valid).then(|| AgentEvent::ProtocolError(why.to_owned()));
            }
            AgentEffect::SendToShim(message) => self.shim.send(&message),
            AgentEffect::SignalShim(signal) => self.shim.signal(signal),
            AgentEffect::InspectShim(check) => return Some(self.inspect_shim(check)),
            AgentEffect::ReapOrphans => return Some(self.reap_orphans()),
            AgentEffect::FindSuspended(workers) => return Some(find_suspended(&workers)),
            AgentEffect::CheckGroup { epoch, port, pids, since_start } => {
                self.run_task(move || {
                    let check = check_group(&pids, port, since_start);
                    TaskResult::Event(AgentEvent::GroupChecked { epoch, check })
                });
            }
            AgentEffect::Examine(request) => self.examine(request),
            AgentEffect::Probe(listeners) => {
                let results = self.result_sender.clone();
                self.tasks.spawn(async move {
                    let probed = AgentEvent::Probed(connectivity::probe_all(listeners).await);
                    let _ = results.send(TaskResult::Event(probed));
                });
            }
            AgentEffect::Print(text) => report::try_print_error(&format!("remuda agent: {text}\n")),
            AgentEffect::Wake(at) => self.wake_at = at,
        }
        None
    }

    /// Takes the descriptors of a message of the shim.
    pub(super) fn on_shim_message(&mut self, message: FromShim, fds: Vec<OwnedFd>) -> AgentEvent {
        tracing::debug!(?message, "shim");
        let descriptors = fds.len();
        self.received_fds = fds;
        AgentEvent::ShimMessage { message, descriptors }
    }

    /// Takes what a task has opened or locked.
    pub(super) fn on_task_result(&mut self, result: TaskResult) -> AgentEvent {
        match result {
            TaskResult::Event(event) => event,
            TaskResult::Preflight(done) => self.on_preflight_done(*done),
            TaskResult::Examination(found) => self.on_examined(*found),
        }
    }

    /// Makes the shim exit, and kills a script or an interpreter that was still running when the
    /// job ended.
    pub(super) fn finish(mut self) {
        self.shim.stop();
        process_tree::kill_descendants(HELPER_KILL_LIMIT, |_, _| {});
    }

    fn window(&self) -> &OutputWindow {
        self.workers.window()
    }

    /// Runs a task that may block on its own thread.
    fn run_task(&mut self, task: impl FnOnce() -> TaskResult + Send + 'static) {
        let results = self.result_sender.clone();
        self.tasks.spawn_blocking(move || {
            let _ = results.send(task());
        });
    }

    fn send_hello(&self, epoch: Epoch) {
        let hello = AgentHello {
            version: wire::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            pid: rustix::process::getpid().as_raw_pid() as u32,
            clock_us: clock::machine_us(),
        };
        self.uplink.send(epoch, &FromAgent::Hello(hello));
    }

    fn begin_epoch(&mut self, epoch: Epoch) {
        if let Some(link) = &mut self.link {
            link.begin_epoch(epoch);
        }
        self.workers.clear();
        self.prepared = None;
        self.started = None;
    }

    /// Runs the checks on their own thread, so that heartbeats continue: file systems and resolvers
    /// may be slow.
    fn run_preflight(&mut self, request: PreflightRequest) {
        // Listeners of earlier checks use the ports that these checks need.
        self.prepared = None;
        self.started = None;
        let lock = self.instance_lock.take();
        self.run_task(move || {
            let PreflightRequest { job, node, epoch, prepare } = request;
            let lock = lock.map_or_else(|| instance_lock::acquire(&job, node, &prepare), Ok);
            let (instance_lock, result) = match lock {
                Ok(lock) => (Some(lock), preflight::run_preflight(&job, epoch, &prepare)),
                Err(problem) => (None, Err(vec![problem])),
            };
            TaskResult::Preflight(Box::new(PreflightResult { prepare, instance_lock, result }))
        });
    }

    fn on_preflight_done(&mut self, done: PreflightResult) -> AgentEvent {
        let PreflightResult { prepare, instance_lock, result } = done;
        self.keep_instance_lock(instance_lock);
        let result = result.map(|mut prepared| {
            self.hold_gpu_locks(std::mem::take(&mut prepared.gpu_locks));
            let listening = prepared.listening.as_ref();
            let found = PreparedNode {
                master: listening.map(Listening::master),
                store: listening.and_then(Listening::store),
                cpus: inventory::usable_cpus() as u32,
                notes: prepared.notes.clone(),
            };
            self.started = None;
            self.prepared = Some(prepared);
            found
        });
        AgentEvent::PreflightDone { prepare: Box::new(prepare), result }
    }

    /// Holds the lock of this node, and makes the shim hold it too: a replacement agent then waits
    /// until the workers have exited, even if this agent was killed.
    fn keep_instance_lock(&mut self, lock: Option<InstanceLock>) {
        self.instance_lock = lock;
        if let (Some(lock), false) = (&self.instance_lock, self.shim_has_lock) {
            self.shim_has_lock = self.shim.hold(std::slice::from_ref(lock));
        }
    }

    /// Holds GPU locks until both the agent and the shim have exited.
    fn hold_gpu_locks(&mut self, locks: Vec<OwnedFd>) {
        self.shim.hold(&locks);
        self.gpu_locks.extend(locks);
    }

    fn start_workers(&mut self, request: &StartRequest) -> Option<AgentEvent> {
        let prepared = self.prepared.take().expect("workers are started once the checks passed");
        self.workers.add(&request.start.workers);
        self.error_files = self.error_files.take().or_else(ErrorFiles::create);
        let workers = worker_start::resolve_workers(request, &prepared, self.error_files.as_ref());
        self.started = Some(StartedWorkers::new(request, prepared));
        let SpawnError { step, errno } = worker_start::spawn(&self.shim, &workers).err()?;
        Some(AgentEvent::SpawnFailed { step, errno })
    }

    fn attach_worker(&mut self, worker: usize, epoch: Epoch) {
        let fds = std::mem::take(&mut self.received_fds);
        let uplink = self.uplink.in_epoch(epoch);
        if let Some(started) = &self.started {
            self.workers.attach(worker, fds, (uplink, &started.welcomes), &mut self.tasks);
        }
        // The shim forks them in their order.
        if worker + 1 == self.workers.len() {
            // From here on the agent waits, and passes output on.
            text_pages::unmap_text_pages();
        }
    }

    /// Sends the failure that a worker recorded, and then its exit.
    fn report_exit(&mut self, report: ExitReport) {
        let ExitReport { epoch, worker, rank, pid, exit, at_us, signals_sent } = report;
        let written = self.error_files.as_ref().and_then(|files| files.take(rank));
        if let Some(WrittenError { bytes, at_us }) = written.filter(|_| !exit.is_success()) {
            self.uplink.send(epoch, &FromAgent::ErrorFile { rank, at_us, bytes });
        }
        let stack = self.error_files.as_ref().and_then(|files| files.take_stack(rank));
        if let Some(text) = stack.filter(|_| !signals_sent.is_empty()) {
            self.uplink.send(epoch, &FromAgent::Stack { rank, text });
        }
        let oom_kills = match exit {
            WorkerExit::Signal { signal: libc::SIGKILL, .. } => self.workers.oom_kills(worker),
            _ => 0,
        };
        let failed = pid.filter(|_| !exit.is_success());
        let xids = failed.map_or_else(Vec::new, |pid| self.workers.xids(pid));
        let kernel = KernelReport { oom_kills, xids };
        let exited = FromAgent::Exited { rank, exit, at_us, signals_sent, kernel };
        self.uplink.send(epoch, &exited);
    }

    fn inspect_shim(&self, check: ShimCheck) -> AgentEvent {
        let stat = self.shim.pid().and_then(Stat::of);
        let status = match stat {
            Some(stat) if stat.is_stopped() => ShimStatus::Stopped,
            Some(stat) if stat.is_suspended() => ShimStatus::Traced,
            _ => ShimStatus::Running,
        };
        AgentEvent::ShimInspected(check, status)
    }

    fn reap_orphans(&mut self) -> AgentEvent {
        match self.shim.reap_orphans() {
            None => AgentEvent::OrphansLeft,
            Some(unkillable) => {
                AgentEvent::OrphansReaped { at_us: clock::machine_us(), unkillable }
            }
        }
    }

    /// Collects the facts on another thread, because file systems, drivers and interpreters may be
    /// slow.
    fn examine(&mut self, request: Box<Examine>) {
        self.run_task(move || {
            TaskResult::Examination(Box::new(diagnostics::collect_facts(&request)))
        });
    }

    /// Opens the listeners that the report names.
    fn on_examined(&mut self, found: HeldReport) -> AgentEvent {
        for (listener, token) in found.listeners {
            self.tasks.spawn(connectivity::serve_probes(listener, token));
        }
        self.port = found.port;
        AgentEvent::Examined(Box::new(found.report))
    }
}

/// Returns the workers that a signal or a debugger has stopped.
fn find_suspended(workers: &[(Rank, u32)]) -> AgentEvent {
    let is_suspended = |pid: u32| {
        let pid = rustix::process::Pid::from_raw(pid as i32);
        pid.and_then(Stat::of).is_some_and(|stat| stat.is_suspended())
    };
    let suspended = workers.iter().filter(|(_, pid)| is_suspended(*pid));
    AgentEvent::SuspendedFound(suspended.map(|(rank, _)| *rank).collect())
}

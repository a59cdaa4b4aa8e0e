//! The main loop of the shim.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Pid;

use super::agent_watch::AgentWatch;
use super::message::{self, FromShim, PACKET_BYTES_MAX, ShimWorker, ToShim};
use super::start_worker::start_worker;
use crate::base::{WorkerExit, clock};
use crate::os::cpu::text_pages;
use crate::os::files::fds;
use crate::os::process::process_tree::{self, KILL_LIMIT, Reaped};
use crate::os::process::signals;
use crate::os::process::start_programs::{ExecFailure, ExecReport, ExecStage, StartingChildren};
use crate::wire::{Leftover, WorkerStartStep};

/// Pause between two such rows of scans.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// Serves the agent until it exits or is lost, then kills all processes that are left, and the lost
/// agent. Returns the exit code.
pub(super) fn main(control: OwnedFd) -> u8 {
    process_tree::set_name(c"remuda-shim");
    process_tree::become_subreaper();
    // Pipes of many workers need many descriptors; the workers get the user's own limit back.
    fds::raise_limit();
    let Ok(children) = signals::child_events() else {
        return 71;
    };
    let agent = rustix::process::getppid();
    let mut shim = ShimLoop {
        watch: AgentWatch::new(clock::now()),
        control,
        children,
        starting: None,
        workers: Vec::new(),
        held_fds: Vec::new(),
        sweeping: BTreeMap::new(),
        unreported: BTreeSet::new(),
        last_exit: None,
        reported: BTreeSet::new(),
        is_empty_reported: true,
    };
    while shim.handle_next_event().is_ok() {}
    process_tree::kill_descendants(KILL_LIMIT, |_, _| {});
    if let Some(agent) = agent.filter(|_| shim.watch.is_lost()) {
        process_tree::kill_parent(agent);
    }
    0
}

/// State of the shim process.
pub(super) struct ShimLoop {
    watch: AgentWatch,
    control: OwnedFd,
    children: OwnedFd,
    /// The workers that were started, until all have executed their programs or failed.
    starting: Option<StartingChildren>,
    pub(super) workers: Vec<Worker>,
    /// Descriptors of the agent that stay open until the shim exits.
    held_fds: Vec<OwnedFd>,
    /// Workers whose leftovers are being killed.
    pub(super) sweeping: BTreeMap<usize, Sweep>,
    /// Workers that have exited, and of which no leftovers were found yet.
    pub(super) unreported: BTreeSet<usize>,
    /// The worker that exited last.
    pub(super) last_exit: Option<usize>,
    /// Workers whose leftovers were reported and may still exist.
    pub(super) reported: BTreeSet<usize>,
    /// Whether the agent was informed that no process is left.
    pub(super) is_empty_reported: bool,
}

/// One worker that was to be started.
pub(super) struct Worker {
    pub(super) rank: String,
    pub(super) state: State,
    /// Signals sent to it while it was alive.
    pub(super) signals_sent: Vec<i32>,
}

/// A sweep of a worker's leftovers. Processes that fork faster than they are scanned need many
/// scans; processes that cannot be killed must not be scanned for ever.
pub(super) struct Sweep {
    pub(super) deadline: Instant,
    /// Scans in a row that found nothing.
    pub(super) empty_scans: u32,
}

/// State of a worker.
pub(super) enum State {
    /// It could not be forked, or failed before exec; already reported.
    Failed,
    /// It was forked and has not exited.
    Alive(Pid),
    /// It has exited.
    Exited(Pid),
}

/// Error: the agent has exited, or is lost.
pub(super) struct AgentGone;

impl ShimLoop {
    /// Waits for one event and handles it.
    fn handle_next_event(&mut self) -> Result<(), AgentGone> {
        let (control, children) = (self.control.as_fd(), self.children.as_fd());
        let mut polled =
            vec![PollFd::new(&control, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        if let Some(starting) = &self.starting {
            polled.push(PollFd::new(starting, PollFlags::IN));
        }
        let pause = (!self.sweeping.is_empty()).then_some(SWEEP_PAUSE);
        let limit = pause.into_iter().chain(self.watch.check_interval()).min();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, limit.as_ref()));
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.get(2) == Some(&true) {
            self.read_failures()?;
        }
        if ready[1] {
            signals::drain(&self.children);
            self.reap()?;
        }
        self.continue_sweeps()?;
        if ready[0] {
            self.on_agent_message()
        } else if self.watch.check(clock::now()) {
            Err(AgentGone)
        } else {
            Ok(())
        }
    }

    /// Receives and handles one message of the agent.
    fn on_agent_message(&mut self) -> Result<(), AgentGone> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let (length, mut fds) =
            fds::recv_packet(&self.control, &mut buffer).map_err(|_| AgentGone)?;
        if length == 0 {
            return Err(AgentGone);
        }
        match message::decode(&buffer[..length]) {
            ToShim::Spawn => {
                let shared = (1 < fds.len()).then(|| fds.remove(1));
                self.spawn(fds.remove(0), shared.as_ref())
            }
            ToShim::Hold => {
                self.held_fds.append(&mut fds);
                Ok(())
            }
            ToShim::Signal(signal) => {
                self.signal_workers(signal);
                Ok(())
            }
            ToShim::TerminateLeftovers { worker, unless_busy } => {
                self.terminate_leftovers(worker as usize, unless_busy)
            }
            ToShim::KillLeftovers { worker } => {
                let sweep = Sweep { deadline: clock::now() + KILL_LIMIT, empty_scans: 0 };
                self.sweeping.insert(worker as usize, sweep);
                self.continue_sweeps()
            }
            ToShim::Kill => self.kill_all(),
            ToShim::Ping { lease } => {
                self.watch.on_ping(clock::now(), lease);
                self.send(&FromShim::Pong, &[])
            }
        }
    }

    /// Sends a message to the agent.
    pub(super) fn send(&self, message: &FromShim, fds: &[OwnedFd]) -> Result<(), AgentGone> {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        fds::send_packet(&self.control, &message::encode(message), &fds).map_err(|_| AgentGone)
    }

    /// Starts all workers, and then waits for their exec.
    fn spawn(&mut self, packed: OwnedFd, shared: Option<&OwnedFd>) -> Result<(), AgentGone> {
        let workers = message::unpack(packed).map_err(|_| AgentGone)?;
        // Workers of an earlier epoch have exited, as the kernel reported.
        self.workers.clear();
        self.sweeping.clear();
        self.reported.clear();
        self.unreported.clear();
        self.last_exit = None;
        self.is_empty_reported = false;
        let mut starting = StartingChildren::new(workers.len()).map_err(|_| AgentGone)?;
        for (index, worker) in workers.into_iter().enumerate() {
            let rank = worker.rank.clone();
            let state = self.start(worker, shared, &mut starting, index as u32)?;
            self.workers.push(Worker { rank, state, signals_sent: Vec::new() });
        }
        starting.all_started();
        self.starting = Some(starting);
        // Children may have exited before they were in the table.
        self.reap()
    }

    /// Starts one worker and reports it to the agent.
    fn start(
        &self,
        worker: ShimWorker,
        shared: Option<&OwnedFd>,
        starting: &mut StartingChildren,
        index: u32,
    ) -> Result<State, AgentGone> {
        let at_us = clock::machine_us();
        match start_worker(worker, shared, starting, index) {
            Ok((pid, fds)) => {
                let number = pid.as_raw_pid() as u32;
                self.send(&FromShim::Forked { worker: index, pid: number, at_us }, &fds)?;
                Ok(State::Alive(pid))
            }
            Err(error) => {
                let (step, errno) = (WorkerStartStep::Fork, error.raw_os_error().unwrap_or(0));
                self.send(&FromShim::Failed { worker: index, step, errno }, &[])?;
                Ok(State::Failed)
            }
        }
    }

    /// Reads which children failed before exec.
    fn read_failures(&mut self) -> Result<(), AgentGone> {
        while let Some(starting) = &mut self.starting {
            match starting.read() {
                ExecReport::Failed(failure) => self.on_exec_failure(failure)?,
                ExecReport::Pending => return Ok(()),
                ExecReport::Ended => {
                    self.starting = None;
                    // From here on it only waits.
                    text_pages::unmap_text_pages();
                }
            }
        }
        Ok(())
    }

    /// Handles the report of a child that failed before exec.
    fn on_exec_failure(&mut self, failure: ExecFailure) -> Result<(), AgentGone> {
        let worker = &mut self.workers[failure.tag as usize];
        if matches!(worker.state, State::Alive(_)) {
            worker.state = State::Failed;
        }
        let step = match failure.stage {
            ExecStage::Setup => WorkerStartStep::Setup,
            ExecStage::Chdir => WorkerStartStep::Chdir,
            ExecStage::Exec => WorkerStartStep::Exec,
        };
        self.send(&FromShim::Failed { worker: failure.tag, step, errno: failure.errno }, &[])
    }

    /// Reaps the children that have exited and reports the workers among them to the agent.
    pub(super) fn reap(&mut self) -> Result<(), AgentGone> {
        loop {
            match process_tree::reap() {
                Reaped::Exited(pid, exit) => self.on_child_exit(pid, exit)?,
                Reaped::NoneExited if self.live_pids().is_empty() => {
                    return self.report_leftovers();
                }
                Reaped::NoneExited => return Ok(()),
                Reaped::NoChildren => return self.report_empty(Vec::new()),
            }
        }
    }

    /// Handles the exit of a child.
    pub(super) fn on_child_exit(&mut self, pid: Pid, exit: WorkerExit) -> Result<(), AgentGone> {
        // A child that could not exec reported it before it exited.
        self.read_failures()?;
        let lives = |worker: &Worker| matches!(worker.state, State::Alive(alive) if alive == pid);
        let Some(index) = self.workers.iter().position(lives) else {
            return Ok(());
        };
        self.workers[index].state = State::Exited(pid);
        let (worker, at_us) = (index as u32, clock::machine_us());
        let sent = self.workers[index].signals_sent.clone();
        self.send(&FromShim::Exited { worker, exit, at_us, signals_sent: sent }, &[])?;
        self.unreported.insert(index);
        self.last_exit = Some(index);
        self.report_leftovers()
    }

    /// Reports, once, that no process is left except those that cannot be killed.
    pub(super) fn report_empty(&mut self, unkillable: Vec<Leftover>) -> Result<(), AgentGone> {
        if self.is_empty_reported {
            return Ok(());
        }
        self.is_empty_reported = true;
        self.send(&FromShim::Empty { unkillable }, &[])
    }

    pub(super) fn live_pids(&self) -> Vec<Pid> {
        let pid = |worker: &Worker| match worker.state {
            State::Alive(pid) => Some(pid),
            State::Failed | State::Exited(_) => None,
        };
        self.workers.iter().filter_map(pid).collect()
    }
}

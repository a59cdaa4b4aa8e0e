//! The main loop of the shim.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Pid;

use super::agent_watch::AgentWatch;
use super::message::{
    self, FromShim, LEFTOVERS_MAX, PACKET_BYTES_MAX, ShimWorker, TERMINATION_SIGNALS, ToShim,
    describe,
};
use crate::agent::affinity::memory_policy;
use crate::base::{WorkerExit, clock, env_vars};
use crate::os::cpu::affinity::Binding;
use crate::os::files::fds;
use crate::os::process::fork::{CStrings, Exec, ExecFailure, ExecStage};
use crate::os::process::process_tree::{self, KILL_LIMIT, ProcessRef, Reaped, Stat};
use crate::os::process::signals;
use crate::wire::{Leftover, WorkerStartStep};

/// Number of scans without a result after which a sweep beside running workers ends.
const EMPTY_SCANS_MAX: u32 = 20;
/// Time limit of one sweep of everything, during which other requests wait.
const SWEEP_LIMIT: Duration = Duration::from_millis(100);
/// Maximum number of scans in a row, for processes that keep forking.
const SCANS_MAX: usize = 16;
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
    let mut shim = Shim {
        watch: AgentWatch::new(clock::now()),
        control,
        children,
        failures: None,
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
struct Shim {
    watch: AgentWatch,
    control: OwnedFd,
    children: OwnedFd,
    /// Pipe on which children report that they failed before exec; open until all have executed or
    /// failed.
    failures: Option<OwnedFd>,
    workers: Vec<Worker>,
    /// Descriptors of the agent that stay open until the shim exits.
    held_fds: Vec<OwnedFd>,
    /// Workers whose leftovers are being killed.
    sweeping: BTreeMap<usize, Sweep>,
    /// Workers that have exited, and of which no leftovers were found yet.
    unreported: BTreeSet<usize>,
    /// The worker that exited last.
    last_exit: Option<usize>,
    /// Workers whose leftovers were reported and may still exist.
    reported: BTreeSet<usize>,
    /// Whether the agent was informed that no process is left.
    is_empty_reported: bool,
}

/// One worker that was to be started.
struct Worker {
    rank: String,
    state: State,
    /// Signals sent to it while it was alive.
    signals_sent: Vec<i32>,
}

/// A sweep of a worker's leftovers. Processes that fork faster than they are scanned need many
/// scans; processes that cannot be killed must not be scanned for ever.
struct Sweep {
    deadline: Instant,
    /// Scans in a row that found nothing.
    empty_scans: u32,
}

/// State of a worker.
enum State {
    /// It could not be forked, or failed before exec; already reported.
    Failed,
    /// It was forked and has not exited.
    Alive(Pid),
    /// It has exited.
    Exited(Pid),
}

/// Error: the agent has exited, or is lost.
struct AgentGone;

impl Shim {
    /// Waits for one event and handles it.
    fn handle_next_event(&mut self) -> Result<(), AgentGone> {
        let (control, children) = (self.control.as_fd(), self.children.as_fd());
        let mut polled =
            vec![PollFd::new(&control, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        if let Some(failures) = &self.failures {
            polled.push(PollFd::new(failures, PollFlags::IN));
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
    fn send(&self, message: &FromShim, fds: &[OwnedFd]) -> Result<(), AgentGone> {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        fds::send_packet(&self.control, &message::encode(message), &fds).map_err(|_| AgentGone)
    }

    /// Forks all workers first and waits for their exec afterwards: on a busy machine, waiting for
    /// each in turn takes four times as long.
    fn spawn(&mut self, packed: OwnedFd, shared: Option<&OwnedFd>) -> Result<(), AgentGone> {
        let workers = message::unpack(packed).map_err(|_| AgentGone)?;
        // Workers of an earlier epoch have exited, as the kernel reported.
        self.workers.clear();
        self.sweeping.clear();
        self.reported.clear();
        self.unreported.clear();
        self.last_exit = None;
        let (failures, report) = fds::pipe().map_err(|_| AgentGone)?;
        let _ = fds::set_nonblocking(&failures);
        self.failures = Some(failures);
        self.is_empty_reported = false;
        for (index, worker) in workers.into_iter().enumerate() {
            let index = index as u32;
            let (rank, at_us) = (worker.rank.clone(), clock::machine_us());
            let state = match fork_worker(worker, shared, &report, index) {
                Ok((pid, fds)) => {
                    let forked =
                        FromShim::Forked { worker: index, pid: pid.as_raw_pid() as u32, at_us };
                    self.send(&forked, &fds)?;
                    State::Alive(pid)
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    self.send(
                        &FromShim::Failed { worker: index, step: WorkerStartStep::Fork, errno },
                        &[],
                    )?;
                    State::Failed
                }
            };
            self.workers.push(Worker { rank, state, signals_sent: Vec::new() });
        }
        drop(report);
        // Children may have exited before they were in the table.
        self.reap()
    }

    /// Reads which children failed before exec. At the end of the pipe, all have executed or
    /// failed.
    fn read_failures(&mut self) -> Result<(), AgentGone> {
        while let Some(failures) = &self.failures {
            let mut record = [0; ExecFailure::BYTES];
            match rustix::io::retry_on_intr(|| rustix::io::read(failures, &mut record)) {
                Ok(ExecFailure::BYTES) => self.on_exec_failure(ExecFailure::decode(record))?,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                _ => self.failures = None,
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
    fn reap(&mut self) -> Result<(), AgentGone> {
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
    fn on_child_exit(&mut self, pid: Pid, exit: WorkerExit) -> Result<(), AgentGone> {
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

    /// Reports each worker that has left processes behind, once they are found. A scan may miss
    /// processes that fork and exit fast, but each of their exits causes another scan.
    fn report_leftovers(&mut self) -> Result<(), AgentGone> {
        if self.unreported.is_empty() {
            return Ok(());
        }
        for pid in process_tree::children_of(rustix::process::getpid()) {
            let Some(owner) = self.owner_of(pid) else {
                continue;
            };
            if self.unreported.remove(&owner) {
                self.reported.insert(owner);
                self.send(&FromShim::Leftovers { worker: owner as u32 }, &[])?;
            }
        }
        Ok(())
    }

    /// Sends SIGTERM to the processes that a worker left behind, and reports them to the agent. A
    /// scan may miss processes that fork and exit fast, so there are several; if none finds a
    /// process, the next exit of a child causes another.
    fn terminate_leftovers(&mut self, worker: usize, unless_busy: bool) -> Result<(), AgentGone> {
        let mut scans = (0..SCANS_MAX).map(|_| self.leftovers_of(worker));
        let leftovers = scans.find(|found| !found.is_empty()).unwrap_or_default();
        let is_busy =
            |process: &ProcessRef| Stat::of(process.pid()).is_none_or(|stat| !stat.is_waiting());
        if unless_busy && leftovers.iter().any(is_busy) {
            return self.send(&FromShim::Leftovers { worker: worker as u32 }, &[]);
        }
        let pids = leftovers.iter().take(LEFTOVERS_MAX).map(ProcessRef::pid);
        let processes: Vec<_> = pids.filter_map(describe).collect();
        for process in &leftovers {
            process.signal(libc::SIGTERM);
        }
        self.send(&FromShim::LeftoversSignalled { worker: worker as u32, processes }, &[])?;
        if !leftovers.is_empty() {
            return Ok(());
        }
        self.reported.remove(&worker);
        self.unreported.insert(worker);
        self.report_leftovers()
    }

    /// Returns the exited worker that left an orphan behind: the one with its rank or its session.
    /// When no worker runs, the orphans of unknown origin belong to one of the reported workers, or
    /// else to the one that exited last.
    fn owner_of(&self, orphan: Pid) -> Option<usize> {
        let living = self.live_pids();
        let stat = Stat::of(orphan).filter(|stat| !stat.has_exited())?;
        if living.contains(&orphan) {
            return None;
        }
        let rank = process_tree::env_var_of(orphan, env_vars::RANK);
        let is_of = |worker: &Worker| match (&rank, &worker.state) {
            (Some(rank), _) => *rank == worker.rank,
            (None, State::Alive(leader) | State::Exited(leader)) => {
                stat.session == leader.as_raw_pid()
            }
            (None, State::Failed) => false,
        };
        let known = self.workers.iter().position(is_of);
        let is_counted =
            |index: &usize| self.unreported.contains(index) || self.reported.contains(index);
        known.filter(is_counted).or_else(|| {
            let last = self.reported.last().copied().or(self.last_exit);
            last.filter(|_| living.is_empty())
        })
    }

    /// Reports, once, that no process is left except those that cannot be killed.
    fn report_empty(&mut self, unkillable: Vec<Leftover>) -> Result<(), AgentGone> {
        if self.is_empty_reported {
            return Ok(());
        }
        self.is_empty_reported = true;
        self.send(&FromShim::Empty { unkillable }, &[])
    }

    /// Signals the process group of every running worker.
    fn signal_workers(&mut self, signal: i32) {
        for worker in &mut self.workers {
            if let State::Alive(pid) = worker.state {
                signals::send_to_group(pid, signal);
                if TERMINATION_SIGNALS.contains(&signal) {
                    worker.signals_sent.push(signal);
                }
            }
        }
    }

    /// Returns the processes that a worker left behind when it exited: its orphans and all their
    /// descendants.
    fn leftovers_of(&self, index: usize) -> Vec<ProcessRef> {
        let mut found = process_tree::hold_children(rustix::process::getpid());
        found.retain(|orphan| self.owner_of(orphan.pid()) == Some(index));
        process_tree::hold_descendants(&mut found);
        found
    }

    /// Scans again for the leftovers that are being killed.
    fn continue_sweeps(&mut self) -> Result<(), AgentGone> {
        // The leftovers of other workers may still have time to exit by themselves.
        let is_last = self.reported.iter().all(|worker| self.sweeping.contains_key(worker));
        if !self.sweeping.is_empty() && is_last && self.live_pids().is_empty() {
            return self.sweep_all();
        }
        for (worker, mut sweep) in std::mem::take(&mut self.sweeping) {
            let left = self.kill_leftovers_of(worker);
            sweep.empty_scans = if left.is_empty() { sweep.empty_scans + 1 } else { 0 };
            if sweep.empty_scans < EMPTY_SCANS_MAX && clock::now() < sweep.deadline {
                self.sweeping.insert(worker, sweep);
            } else {
                self.reported.remove(&worker);
            }
        }
        Ok(())
    }

    /// Sweeps when no worker runs: every descendant is a leftover, and the kernel reports when
    /// none is left.
    fn sweep_all(&mut self) -> Result<(), AgentGone> {
        let left = process_tree::kill_descendants(SWEEP_LIMIT, |_, _| {});
        self.reap()?;
        if !self.is_empty_reported
            && self.sweeping.values().all(|sweep| sweep.deadline <= clock::now())
        {
            self.report_empty(left.into_iter().take(LEFTOVERS_MAX).filter_map(describe).collect())?;
        }
        if self.is_empty_reported {
            self.sweeping.clear();
        }
        Ok(())
    }

    /// Kills the processes that a worker left behind, until a scan finds none or the maximum of
    /// scans is reached; returns the result of the last scan.
    fn kill_leftovers_of(&self, worker: usize) -> Vec<ProcessRef> {
        let mut leftovers = Vec::new();
        for _ in 0..SCANS_MAX {
            leftovers = self.leftovers_of(worker);
            if leftovers.is_empty() {
                break;
            }
            for process in &leftovers {
                process.signal(libc::SIGKILL);
            }
        }
        leftovers
    }

    fn live_pids(&self) -> Vec<Pid> {
        let pid = |worker: &Worker| match worker.state {
            State::Alive(pid) => Some(pid),
            State::Failed | State::Exited(_) => None,
        };
        self.workers.iter().filter_map(pid).collect()
    }

    /// Kills all descendants until the kernel reports that no child is left.
    fn kill_all(&mut self) -> Result<(), AgentGone> {
        for worker in &mut self.workers {
            worker.signals_sent.push(libc::SIGKILL);
        }
        let mut exits = Vec::new();
        let left = process_tree::kill_descendants(KILL_LIMIT, |pid, exit| exits.push((pid, exit)));
        for (pid, exit) in exits {
            self.on_child_exit(pid, exit)?;
        }
        self.report_empty(left.into_iter().take(LEFTOVERS_MAX).filter_map(describe).collect())
    }
}

/// Creates the pipes and the environment of a worker and forks it. Returns the agent's ends of the
/// pipes and sockets.
fn fork_worker(
    worker: ShimWorker,
    shared: Option<&OwnedFd>,
    report: &OwnedFd,
    tag: u32,
) -> io::Result<(Pid, Vec<OwnedFd>)> {
    let (out_read, out_write) = fds::output_pipe()?;
    let (err_read, err_write) = fds::output_pipe()?;
    let (rank_socket, worker_rank_socket) = fds::stream_pair()?;
    let mut agent_ends = vec![out_read, err_read, rank_socket];
    let input = if worker.stdin {
        let (read, write) = fds::pipe()?;
        agent_ends.push(write);
        read
    } else {
        fds::null()?
    };
    let mut env = worker.env;
    env.push(descriptor_variable(env_vars::REMUDA_RANK_FD, &worker_rank_socket));
    let mut inherited_fds = vec![worker_rank_socket];
    if let Some(shared) = shared {
        let copy = shared.try_clone()?;
        env.push(descriptor_variable(env_vars::REMUDA_SHM_FD, &copy));
        inherited_fds.push(copy);
    }
    let exec = Exec {
        path: CString::new(worker.path)?,
        argv: CStrings::new(worker.argv)?,
        envp: CStrings::new(env.into_iter().map(|(name, value)| [name, value].join(&b'=')))?,
        cwd: CString::new(worker.cwd)?,
        stdio: [input, out_write, err_write],
        inherited_fds,
        binding: worker
            .bound
            .map(|share| Binding::new(&share.cpus, share.memory.as_ref().map(memory_policy))),
    };
    let pid = exec.spawn(report.as_fd(), tag, rustix::process::getpid())?;
    Ok((pid, agent_ends))
}

fn descriptor_variable(name: &str, fd: &OwnedFd) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), fd.as_raw_fd().to_string().into_bytes())
}

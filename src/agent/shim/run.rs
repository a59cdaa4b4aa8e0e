//! The main loop of the shim.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Pid;

use super::message::{self, FromShim, LEFTOVERS_MAX, PACKET_BYTES_MAX, ShimWorker, ToShim};
use crate::agent::bind::policy;
use crate::base::{WorkerExit, clock, env_vars};
use crate::os::affinity::Binding;
use crate::os::family::{self, KILL_LIMIT, ProcessRef, Reaped, Stat};
use crate::os::fork::{CStrings, Exec, ExecFailure, ExecStage};
use crate::os::{fds, signals};
use crate::wire::{Leftover, OpenFailure};

/// Number of scans without a result after which a sweep beside running workers ends.
const VAIN_LOOKS_MAX: u32 = 20;
/// Time limit of one sweep of everything, during which other requests wait.
const SWEEP_LIMIT: Duration = Duration::from_millis(100);
/// Maximum number of scans in a row, for processes that keep forking.
const SWEEPS_MAX: usize = 16;
/// Pause between two such rows of scans.
const SWEEP_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Signals after which the exit of a worker is attributed to remuda.
const ASKS_TO_END: [i32; 5] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGKILL];

/// Serves the agent until it exits, then kills all processes that are left. Returns the exit code.
pub(super) fn main(control: OwnedFd) -> u8 {
    family::set_name(c"remuda-shim");
    family::become_subreaper();
    // Pipes of many workers need many descriptors; the workers get the user's own limit back.
    fds::raise_limit();
    let Ok(children) = signals::child_events() else {
        return 71;
    };
    let mut shim = Shim {
        control,
        children,
        failures: None,
        workers: Vec::new(),
        held: Vec::new(),
        sweeping: BTreeMap::new(),
        unseen: None,
        told: BTreeSet::new(),
        emptied: true,
    };
    while shim.turn().is_ok() {}
    family::kill_descendants(KILL_LIMIT, |_, _| {});
    0
}

/// State of the shim process.
struct Shim {
    control: OwnedFd,
    children: OwnedFd,
    /// Pipe on which children report that they failed before exec; open until all have executed or
    /// failed.
    failures: Option<OwnedFd>,
    workers: Vec<Worker>,
    /// Descriptors of the agent that stay open until the shim exits.
    held: Vec<OwnedFd>,
    /// Workers whose leftovers are being killed.
    sweeping: BTreeMap<usize, Sweep>,
    /// The worker that exited last, if no leftovers of it were found yet.
    unseen: Option<usize>,
    /// Workers whose leftovers were reported and may still exist.
    told: BTreeSet<usize>,
    /// Whether the agent was informed that no process is left.
    emptied: bool,
}

/// One worker that was to be started.
struct Worker {
    rank: String,
    state: State,
    /// Signals sent to it while it was alive.
    sent: Vec<i32>,
}

/// A sweep of a worker's leftovers. Processes that fork faster than they are scanned need many
/// scans; processes that cannot be killed must not be scanned for ever.
struct Sweep {
    until: Instant,
    /// Scans in a row that found nothing.
    vain: u32,
}

/// State of a worker.
enum State {
    /// It could not be forked, or failed before exec; already reported.
    Failed(Option<Pid>),
    /// It was forked and has not exited.
    Lives(Pid),
    /// It has exited.
    Ended(Pid),
}

/// Error: the agent has exited.
struct AgentGone;

impl Shim {
    /// Waits for one event and handles it.
    fn turn(&mut self) -> Result<(), AgentGone> {
        let (control, children) = (self.control.as_fd(), self.children.as_fd());
        let mut polled =
            vec![PollFd::new(&control, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        if let Some(failures) = &self.failures {
            polled.push(PollFd::new(failures, PollFlags::IN));
        }
        let limit = (!self.sweeping.is_empty()).then_some(&SWEEP_PAUSE);
        let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, limit));
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.get(2) == Some(&true) {
            self.read_failures()?;
        }
        if ready[1] {
            signals::drain(&self.children);
            self.reap()?;
        }
        self.sweep_again()?;
        if ready[0] { self.obey() } else { Ok(()) }
    }

    /// Receives and handles one message of the agent.
    fn obey(&mut self) -> Result<(), AgentGone> {
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
                self.held.append(&mut fds);
                Ok(())
            }
            ToShim::Signal(signal) => {
                self.signal(signal);
                Ok(())
            }
            ToShim::Sweep { worker, spares_busy: unless_busy } => {
                self.sweep(worker as usize, unless_busy)
            }
            ToShim::KillLeftovers { worker } => {
                let sweep = Sweep { until: clock::now() + KILL_LIMIT, vain: 0 };
                self.sweeping.insert(worker as usize, sweep);
                self.sweep_again()
            }
            ToShim::Kill => self.kill(),
            ToShim::Ping => self.say(&FromShim::Pong, &[]),
        }
    }

    /// Sends a message to the agent.
    fn say(&self, message: &FromShim, fds: &[OwnedFd]) -> Result<(), AgentGone> {
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
        self.told.clear();
        self.unseen = None;
        let (failures, report) = fds::pipe().map_err(|_| AgentGone)?;
        let _ = fds::set_nonblocking(&failures);
        self.failures = Some(failures);
        self.emptied = false;
        for (index, worker) in workers.into_iter().enumerate() {
            let index = index as u32;
            let (rank, at_us) = (worker.rank.clone(), clock::machine_us());
            let state = match fork_worker(worker, shared, &report, index) {
                Ok((pid, fds)) => {
                    let forked =
                        FromShim::Forked { worker: index, pid: pid.as_raw_pid() as u32, at_us };
                    self.say(&forked, &fds)?;
                    State::Lives(pid)
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    self.say(
                        &FromShim::Failed { worker: index, step: OpenFailure::Fork, errno },
                        &[],
                    )?;
                    State::Failed(None)
                }
            };
            self.workers.push(Worker { rank, state, sent: Vec::new() });
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
                Ok(ExecFailure::BYTES) => self.fail(ExecFailure::decode(record))?,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                _ => self.failures = None,
            }
        }
        Ok(())
    }

    /// Handles the report of a child that failed before exec.
    fn fail(&mut self, failure: ExecFailure) -> Result<(), AgentGone> {
        let worker = &mut self.workers[failure.tag as usize];
        if let State::Lives(pid) = worker.state {
            worker.state = State::Failed(Some(pid));
        }
        let step = match failure.stage {
            ExecStage::Setup => OpenFailure::Setup,
            ExecStage::Chdir => OpenFailure::Chdir,
            ExecStage::Exec => OpenFailure::Exec,
        };
        self.say(&FromShim::Failed { worker: failure.tag, step, errno: failure.errno }, &[])
    }

    /// Reaps the children that have exited and reports the workers among them to the agent.
    fn reap(&mut self) -> Result<(), AgentGone> {
        loop {
            match family::reap() {
                Reaped::Ended(pid, exit) => self.ended(pid, exit)?,
                Reaped::NobodyYet if self.living().is_empty() => return self.tell_leftovers(),
                Reaped::NobodyYet => return Ok(()),
                Reaped::NoChildren => return self.empty(Vec::new()),
            }
        }
    }

    /// Handles the exit of a child.
    fn ended(&mut self, pid: Pid, exit: WorkerExit) -> Result<(), AgentGone> {
        // A child that could not exec reported it before it exited.
        self.read_failures()?;
        let lives = |worker: &Worker| matches!(worker.state, State::Lives(alive) if alive == pid);
        let Some(index) = self.workers.iter().position(lives) else {
            return Ok(());
        };
        self.workers[index].state = State::Ended(pid);
        let (worker, at_us) = (index as u32, clock::machine_us());
        let sent = self.workers[index].sent.clone();
        self.say(&FromShim::Ended { worker, exit, at_us, sent }, &[])?;
        self.unseen = Some(index);
        self.tell_leftovers()
    }

    /// Reports the leftovers of the worker that exited last, once they are found. A scan may miss
    /// processes that fork and exit fast, but each of their exits causes another scan.
    fn tell_leftovers(&mut self) -> Result<(), AgentGone> {
        let Some(index) = self.unseen else {
            return Ok(());
        };
        if !self.strays_of(index).iter().any(|process| self.is_news(process.pid(), index)) {
            return Ok(());
        }
        self.unseen = None;
        self.told.insert(index);
        self.say(&FromShim::Leftovers { worker: index as u32 }, &[])
    }

    /// Sends SIGTERM to the processes that a worker left behind, and reports them to the agent. A
    /// scan may miss processes that fork and exit fast, so there are several; if none finds a
    /// process, the next exit of a child causes another.
    fn sweep(&mut self, worker: usize, unless_busy: bool) -> Result<(), AgentGone> {
        let mut scans = (0..SWEEPS_MAX).map(|_| self.strays_of(worker));
        let leftovers = scans.find(|found| !found.is_empty()).unwrap_or_default();
        let is_busy =
            |process: &ProcessRef| Stat::of(process.pid()).is_none_or(|stat| !stat.is_waiting());
        if unless_busy && leftovers.iter().any(is_busy) {
            return self.say(&FromShim::Leftovers { worker: worker as u32 }, &[]);
        }
        let pids = leftovers.iter().take(LEFTOVERS_MAX).map(ProcessRef::pid);
        let processes: Vec<_> = pids.filter_map(describe).collect();
        for process in &leftovers {
            process.signal(libc::SIGTERM);
        }
        self.say(&FromShim::Swept { worker: worker as u32, processes }, &[])?;
        if !leftovers.is_empty() {
            return Ok(());
        }
        self.told.remove(&worker);
        self.unseen.get_or_insert(worker);
        self.tell_leftovers()
    }

    /// Whether a leftover process has not been reported as that of another worker.
    fn is_news(&self, pid: Pid, index: usize) -> bool {
        let Some(rank) = family::variable_of(pid, env_vars::RANK) else {
            return self.told.is_empty();
        };
        rank == self.workers[index].rank
            || !self.told.iter().any(|other| self.workers[*other].rank == rank)
    }

    /// Reports, once, that no process is left except those that cannot be killed.
    fn empty(&mut self, unkillable: Vec<Leftover>) -> Result<(), AgentGone> {
        if self.emptied {
            return Ok(());
        }
        self.emptied = true;
        self.say(&FromShim::Empty { undead: unkillable }, &[])
    }

    /// Signals the process group of every running worker.
    fn signal(&mut self, signal: i32) {
        for worker in &mut self.workers {
            if let State::Lives(pid) = worker.state {
                signals::send_to_group(pid, signal);
                if ASKS_TO_END.contains(&signal) {
                    worker.sent.push(signal);
                }
            }
        }
    }

    /// Returns the processes that a worker left behind when it exited: orphans that have its rank
    /// or its session, and all their descendants. When no worker runs, every orphan is the last
    /// worker's.
    fn strays_of(&self, index: usize) -> Vec<ProcessRef> {
        let (State::Ended(leader) | State::Failed(Some(leader))) = self.workers[index].state else {
            return Vec::new();
        };
        let (living, rank) = (self.living(), &self.workers[index].rank);
        let is_leftover = |pid: Pid| {
            !living.contains(&pid)
                && Stat::of(pid).is_some_and(|stat| !stat.is_dead())
                && (living.is_empty() || belongs(pid, leader, rank))
        };
        let mut found = family::hold_children(rustix::process::getpid());
        found.retain(|orphan| is_leftover(orphan.pid()));
        family::hold_descendants(&mut found);
        found
    }

    /// Scans again for the leftovers that are being killed.
    fn sweep_again(&mut self) -> Result<(), AgentGone> {
        if !self.sweeping.is_empty() && self.living().is_empty() {
            return self.sweep_all();
        }
        for (worker, mut sweep) in std::mem::take(&mut self.sweeping) {
            let left = self.kill_strays_of(worker);
            sweep.vain = if left.is_empty() { sweep.vain + 1 } else { 0 };
            if sweep.vain < VAIN_LOOKS_MAX && clock::now() < sweep.until {
                self.sweeping.insert(worker, sweep);
            } else {
                self.told.remove(&worker);
            }
        }
        Ok(())
    }

    /// Sweeps when no worker runs: every descendant is a leftover, and the kernel reports when
    /// none is left.
    fn sweep_all(&mut self) -> Result<(), AgentGone> {
        let left = family::kill_descendants(SWEEP_LIMIT, |_, _| {});
        self.reap()?;
        if !self.emptied && self.sweeping.values().all(|sweep| sweep.until <= clock::now()) {
            self.empty(left.into_iter().take(LEFTOVERS_MAX).filter_map(describe).collect())?;
        }
        if self.emptied {
            self.sweeping.clear();
        }
        Ok(())
    }

    /// Kills the processes that a worker left behind, until a scan finds none or the maximum of
    /// scans is reached; returns the result of the last scan.
    fn kill_strays_of(&self, worker: usize) -> Vec<ProcessRef> {
        let mut leftovers = Vec::new();
        for _ in 0..SWEEPS_MAX {
            leftovers = self.strays_of(worker);
            if leftovers.is_empty() {
                break;
            }
            for process in &leftovers {
                process.signal(libc::SIGKILL);
            }
        }
        leftovers
    }

    fn living(&self) -> Vec<Pid> {
        let pid = |worker: &Worker| match worker.state {
            State::Lives(pid) => Some(pid),
            State::Failed(_) | State::Ended(_) => None,
        };
        self.workers.iter().filter_map(pid).collect()
    }

    /// Kills all descendants until the kernel reports that no child is left.
    fn kill(&mut self) -> Result<(), AgentGone> {
        for worker in &mut self.workers {
            worker.sent.push(libc::SIGKILL);
        }
        let mut exits = Vec::new();
        let left = family::kill_descendants(KILL_LIMIT, |pid, exit| exits.push((pid, exit)));
        for (pid, exit) in exits {
            self.ended(pid, exit)?;
        }
        self.empty(left.into_iter().take(LEFTOVERS_MAX).filter_map(describe).collect())
    }
}

/// Whether a process was started by the worker with this session leader and this rank.
fn belongs(pid: Pid, leader: Pid, rank: &str) -> bool {
    match family::variable_of(pid, env_vars::RANK) {
        Some(value) => value == rank,
        None => Stat::of(pid).is_some_and(|stat| stat.session == leader.as_raw_pid()),
    }
}

fn describe(pid: Pid) -> Option<Leftover> {
    Some(Leftover { pid: pid.as_raw_pid() as u32, name: Stat::of(pid)?.name })
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
        kept: inherited_fds,
        binding: worker
            .bound
            .map(|share| Binding::new(&share.cpus, share.memory.as_ref().map(policy))),
    };
    let pid = exec.spawn(report.as_fd(), tag, rustix::process::getpid())?;
    Ok((pid, agent_ends))
}

fn descriptor_variable(name: &str, fd: &OwnedFd) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), fd.as_raw_fd().to_string().into_bytes())
}

//! Simulated workers: they run, exit, fail, receive signals and leave processes behind.

use super::clock::{MS, Micros};
use super::draw::Draw;
use super::incidents::{Blame, Check, Incident};
use super::processes::{EndReason, LeftoverState, SimulatedWorker};
use super::scenario::OnStop;
use super::story::Teller;
use super::world::{Happening, Simulation};
use crate::agent::AgentEvent;
use crate::base::{Epoch, Rank, WorkerExit};
use crate::wire::Stream;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Time after which the end of a stream is read, if there is output before it.
const UNREAD_PAUSE: Micros = 200 * MS;

pub(super) const KILLED: WorkerExit = WorkerExit::Signal { signal: SIGKILL, core: false };

impl Simulation {
    /// Starts a worker. No process of another epoch or of another agent may live on its host.
    pub(super) fn start_worker(
        &mut self,
        agent: usize,
        index: u32,
        rank: Rank,
        epoch: Epoch,
    ) -> usize {
        let host = self.agents[agent].host;
        let is_other = |worker: &&SimulatedWorker| {
            worker.host == host
                && (worker.epoch, worker.agent) != (epoch, agent)
                && self.is_present(worker)
        };
        if let Some(old) = self.workers.iter().find(is_other) {
            let (old, old_epoch) = (old.rank, old.epoch);
            self.truth.fail(Check::OneEpoch, || {
                format!(
                    "rank {rank} of epoch {epoch} starts on host {host} while rank {old} of epoch \
                     {old_epoch} runs there"
                )
            });
        }
        let worker = self.workers.len();
        self.workers.push(SimulatedWorker {
            agent,
            host,
            index,
            rank,
            epoch,
            is_alive: true,
            reaped_at: None,
            is_attached: false,
            early_ends: Vec::new(),
            is_stopped: false,
            is_kill_pending: false,
            pending_exit: None,
            signals_sent: Vec::new(),
            exit: None,
            leftover: LeftoverState::None,
            closed_streams: Vec::new(),
        });
        self.tell(Teller::Worker { host, rank: rank.0 }, || format!("starts in epoch {epoch}"));
        let run_time = self.scenario.run_time + self.random.between(0, 200 * MS);
        let (exit, reason) = (WorkerExit::Code(0), EndReason::Finished);
        self.after(run_time, Happening::WorkerExits { worker, exit, reason });
        if self.hosts[host].keeps_failing {
            let time = self.random.between(MS, 3_000 * MS);
            let (exit, reason) = (WorkerExit::Code(3), EndReason::Fault);
            self.after(time, Happening::WorkerExits { worker, exit, reason });
        }
        self.plan_output(worker);
        worker
    }

    /// Whether the worker, or the process that it left, exists and could be killed.
    fn is_present(&self, worker: &SimulatedWorker) -> bool {
        let is_unkillable = self.scenario.habits[worker.rank.index()].is_unkillable;
        worker.is_alive && !is_unkillable || worker.leftover == LeftoverState::Running
    }

    /// A worker exits; one that is suspended does so when it is continued, unless it is killed.
    pub(super) fn exit_worker(&mut self, index: usize, exit: WorkerExit, reason: EndReason) {
        let worker = &mut self.workers[index];
        if !worker.is_alive {
            return;
        }
        let is_off = 0 < self.hosts[worker.host].suspensions;
        if is_off || worker.is_stopped && exit != KILLED {
            if exit == KILLED || worker.pending_exit.is_none() {
                worker.pending_exit = Some((exit, reason));
            }
            return;
        }
        let (exit, reason) =
            if worker.is_kill_pending { (KILLED, EndReason::Stopped) } else { (exit, reason) };
        worker.is_alive = false;
        worker.exit = Some((exit, reason));
        if !worker.is_kill_pending {
            self.truth.last_exit_at = self.agenda.now;
        }
        let (agent, host, rank, epoch) = (worker.agent, worker.host, worker.rank, worker.epoch);
        self.tell(Teller::Worker { host, rank: rank.0 }, || format!("{exit} ({reason:?})"));
        let blame = match reason {
            EndReason::Fault => Some(Blame::Worker { rank, epoch, exit }),
            EndReason::Witness => Some(Blame::Witness { rank, epoch, exit }),
            EndReason::Finished | EndReason::Stopped | EndReason::ParentGone => None,
        };
        if let Some(blame) = blame {
            let at = self.now();
            self.truth.incidents.push(Incident { at, since: at, until: Micros::MAX, blame });
        }
        // SIGKILL of remuda hits everything that the worker has started, too.
        let leftover = self.scenario.habits[rank.index()]
            .leftover
            .filter(|_| exit != KILLED || reason == EndReason::Fault);
        if let Some(habits) = leftover {
            self.workers[index].leftover = LeftoverState::Running;
            // The process that kills what is left of the node finds it, too.
            let shim = &self.agents[agent].shim;
            let is_being_killed = shim.killing_until.is_some() || !shim.is_alive;
            let run_time = if is_being_killed { 0 } else { habits.run_time };
            self.after(run_time, Happening::LeftoverExits(index));
        }
        if leftover.is_none_or(|habits| !habits.holds_output) {
            self.end_streams_soon(index);
        }
        if self.agents[agent].shim.is_alive {
            self.agents[agent].shim.exits.push_back(index);
            self.soon(Happening::ShimRuns(agent));
        }
        if reason != EndReason::Witness && reason != EndReason::Stopped && !exit.is_success() {
            self.fail_group(agent, epoch, 500 * MS);
        }
    }

    /// The workers of other nodes that need those of this agent fail within this time.
    pub(super) fn fail_group(&mut self, agent: usize, epoch: Epoch, within: Micros) {
        if !self.scenario.is_group {
            return;
        }
        let launcher_of = |agent: usize| self.connections[self.agents[agent].connection].launcher;
        let launcher = launcher_of(agent);
        let is_peer = |worker: &SimulatedWorker| {
            let is_other = worker.agent != agent && worker.epoch == epoch;
            is_other && launcher_of(worker.agent) == launcher
        };
        for worker in (0..self.workers.len())
            .filter(|index| is_peer(&self.workers[*index]))
            .collect::<Vec<_>>()
        {
            let (exit, reason) = (WorkerExit::Code(1), EndReason::Witness);
            let time = self.random.between(within / 5, within);
            self.after(time, Happening::WorkerExits { worker, exit, reason });
        }
    }

    pub(super) fn end_streams_soon(&mut self, worker: usize) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.soon(Happening::StreamEnds { worker, stream, is_held_open: false });
        }
    }

    /// The agent reads the end of a stream.
    pub(super) fn end_stream(&mut self, worker: usize, stream: Stream, is_held_open: bool) {
        if !self.workers[worker].is_attached {
            return self.workers[worker].early_ends.push(stream);
        }
        if self.has_unread(worker) && self.agents[self.workers[worker].agent].is_alive {
            // The end comes after the output.
            let ends = Happening::StreamEnds { worker, stream, is_held_open };
            return self.after(UNREAD_PAUSE, ends);
        }
        let SimulatedWorker { agent, index, epoch, ref mut closed_streams, .. } =
            self.workers[worker];
        if !self.agents[agent].is_alive || closed_streams.contains(&stream) {
            return;
        }
        closed_streams.push(stream);
        let agent_epoch = self.agents[agent].epoch;
        if agent_epoch != epoch {
            return;
        }
        let worker = index as usize;
        let ended = AgentEvent::StreamEnded { worker, stream, is_held_open };
        self.agents[agent].results.push_back(ended);
        self.run_agent(agent);
    }

    /// The agent reads the output of a worker from now on.
    pub(super) fn attach_worker(&mut self, worker: usize) {
        self.workers[worker].is_attached = true;
        for stream in std::mem::take(&mut self.workers[worker].early_ends) {
            self.soon(Happening::StreamEnds { worker, stream, is_held_open: false });
        }
    }

    /// The process that a worker left behind exits.
    pub(super) fn exit_leftover(&mut self, worker: usize) {
        let SimulatedWorker { agent, host, rank, ref mut leftover, .. } = self.workers[worker];
        if *leftover != LeftoverState::Running {
            return;
        }
        *leftover = LeftoverState::Exited;
        self.tell(Teller::Worker { host, rank: rank.0 }, || {
            "its leftover process exits".to_owned()
        });
        self.end_streams_soon(worker);
        self.soon(Happening::ShimRuns(agent));
    }

    /// Sends a signal to a worker.
    pub(super) fn signal_worker(&mut self, worker: usize, signal: i32) {
        let habits = self.scenario.habits[self.workers[worker].rank.index()];
        if !self.workers[worker].is_alive {
            return;
        }
        match signal {
            SIGSTOP => self.workers[worker].is_stopped = true,
            SIGCONT => {
                self.workers[worker].is_stopped = false;
                self.release_exit(worker);
            }
            SIGKILL if habits.is_unkillable => self.workers[worker].is_kill_pending = true,
            SIGKILL => self.exit_soon(worker, KILLED, EndReason::Stopped),
            SIGTERM | SIGINT | SIGHUP => match habits.on_term {
                OnStop::IgnoresIt => {}
                OnStop::IsKilled => {
                    let exit = WorkerExit::Signal { signal, core: false };
                    self.exit_soon(worker, exit, EndReason::Stopped);
                }
                OnStop::ExitsWith { code, after } => {
                    let (exit, reason) = (WorkerExit::Code(code), EndReason::Stopped);
                    self.after(after, Happening::WorkerExits { worker, exit, reason });
                }
            },
            _ => {}
        }
    }

    /// A suspended worker that was to exit does so now.
    pub(super) fn release_exit(&mut self, worker: usize) {
        if let Some((exit, reason)) = self.workers[worker].pending_exit.take() {
            self.exit_soon(worker, exit, reason);
        }
    }

    fn exit_soon(&mut self, worker: usize, exit: WorkerExit, reason: EndReason) {
        self.soon(Happening::WorkerExits { worker, exit, reason });
    }

    /// Kills what is left of an agent's workers, because their parent has exited.
    pub(super) fn kill_orphans(&mut self, agent: usize) {
        for worker in self.workers_of(agent) {
            self.kill_orphan(worker);
            if self.workers[worker].leftover == LeftoverState::Running {
                self.soon(Happening::LeftoverExits(worker));
            }
        }
    }

    /// Kills a worker whose parent has exited.
    pub(super) fn kill_orphan(&mut self, worker: usize) {
        if self.is_unkillable(worker) {
            self.workers[worker].is_kill_pending = true;
        } else if self.workers[worker].is_alive {
            self.exit_soon(worker, KILLED, EndReason::ParentGone);
        }
    }

    /// Indices of all workers that an agent has started.
    pub(super) fn workers_of(&self, agent: usize) -> Vec<usize> {
        (0..self.workers.len()).filter(|worker| self.workers[*worker].agent == agent).collect()
    }

    /// Whether a process of an agent exists; with those that cannot be killed.
    pub(super) fn has_processes(&self, agent: usize) -> bool {
        let mut of_agent = self.workers.iter().filter(|worker| worker.agent == agent);
        of_agent.any(|worker| worker.is_alive || worker.leftover == LeftoverState::Running)
    }

    /// Whether SIGKILL has no effect on a worker.
    pub(super) fn is_unkillable(&self, worker: usize) -> bool {
        self.scenario.habits[self.workers[worker].rank.index()].is_unkillable
    }

    /// Whether a process of an agent exists that can be killed.
    pub(super) fn has_killable(&self, agent: usize) -> bool {
        let mut of_agent = self.workers.iter().filter(|worker| worker.agent == agent);
        of_agent.any(|worker| self.is_present(worker))
    }

    /// Number of processes of an agent that cannot be killed.
    pub(super) fn unkillable_of(&self, agent: usize) -> usize {
        let of_agent = self.workers.iter().filter(|worker| worker.agent == agent);
        of_agent.filter(|worker| worker.is_alive).count()
    }
}

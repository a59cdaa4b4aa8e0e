//! The simulated shim: starts workers, passes signals on, reports exits. It exits with its agent, and
//! its workers with it.

use super::clock::SECOND;
use super::draw::Draw;
use super::incidents::Check;
use super::processes::{LeftoverState, ShimRequest, SimulatedWorker};
use super::story::Teller;
use super::world::{Happening, Simulation};
use crate::agent::{FromShim, TERMINATION_SIGNALS, ToShim};
use crate::base::{Epoch, Rank};
use crate::wire::{Leftover, WorkerStartStep};

/// Time limit for the exit of processes that the shim has killed.
const KILL_LIMIT: u64 = 10 * SECOND;
const ENOENT: i32 = 2;
const SIGKILL: i32 = 9;

impl Simulation {
    /// The shim handles everything that it has received.
    pub(super) fn run_shim(&mut self, agent: usize) {
        loop {
            let is_off = 0 < self.hosts[self.agents[agent].host].suspensions;
            let shim = &mut self.agents[agent].shim;
            if !shim.is_alive || 0 < shim.suspensions || is_off {
                return;
            }
            if let Some(limit) = shim.killing_until {
                if self.has_processes(agent) && self.now() < limit {
                    return;
                }
                self.finish_kill(agent);
            } else if !shim.has_agent {
                self.begin_kill(agent);
            } else if let Some(worker) = shim.exits.pop_front() {
                self.reap_worker(agent, worker);
            } else if let Some(request) = shim.requests.pop_front() {
                self.on_shim_request(agent, request);
            } else {
                self.report_empty(agent);
                return;
            }
        }
    }

    fn on_shim_request(&mut self, agent: usize, request: ShimRequest) {
        match request {
            ShimRequest::Spawn(epoch, ranks) => self.spawn(agent, epoch, &ranks),
            ShimRequest::Message(ToShim::Signal(signal)) => {
                for worker in self.agents[agent].shim.workers.clone() {
                    if self.workers[worker].reaped_at.is_some() {
                        continue;
                    }
                    if TERMINATION_SIGNALS.contains(&signal) {
                        self.workers[worker].signals_sent.push(signal);
                    }
                    self.signal_worker(worker, signal);
                }
            }
            ShimRequest::Message(ToShim::Kill) => self.begin_kill(agent),
            ShimRequest::Message(ToShim::Ping { .. }) => self.tell_agent(agent, FromShim::Pong),
            ShimRequest::Message(ToShim::TerminateLeftovers { worker, unless_busy }) => {
                self.terminate_leftovers(agent, worker, unless_busy);
            }
            ShimRequest::Message(ToShim::KillLeftovers { worker }) => {
                let worker = self.agents[agent].shim.workers[worker as usize];
                if self.workers[worker].leftover == LeftoverState::Running {
                    self.soon(Happening::LeftoverExits(worker));
                }
            }
            ShimRequest::Message(ToShim::Spawn | ToShim::Hold) => {}
        }
    }

    fn spawn(&mut self, agent: usize, epoch: Epoch, ranks: &[Rank]) {
        let host = self.agents[agent].host;
        let shim = &mut self.agents[agent].shim;
        (shim.workers, shim.reported) = (Vec::new(), Vec::new());
        shim.is_empty_reported = false;
        for (index, rank) in (0..).zip(ranks) {
            let worker = self.start_worker(agent, index, *rank, epoch);
            self.agents[agent].shim.workers.push(worker);
            let (pid, at_us) = (worker as u32, self.now() + self.hosts[host].clock_ahead);
            self.tell_agent(agent, FromShim::Forked { worker: index, pid, at_us });
            if self.hosts[host].cannot_execute {
                let step = WorkerStartStep::Exec;
                let failed = FromShim::Failed { worker: index, step, errno: ENOENT };
                let worker = &mut self.workers[worker];
                (worker.is_alive, worker.reaped_at) = (false, Some(self.agenda.now));
                self.tell_agent(agent, failed);
                self.end_streams_soon(self.workers.len() - 1);
            }
        }
    }

    fn reap_worker(&mut self, agent: usize, index: usize) {
        let host = self.agents[agent].host;
        let at_us = self.now() + self.hosts[host].clock_ahead;
        let worker = &mut self.workers[index];
        if worker.reaped_at.replace(self.agenda.now).is_some() {
            return;
        }
        let SimulatedWorker { index: number, leftover, ref signals_sent, exit, .. } = *worker;
        let (exit, _) = exit.expect("it has exited");
        let signals_sent = signals_sent.clone();
        self.tell_agent(agent, FromShim::Exited { worker: number, exit, at_us, signals_sent });
        if leftover == LeftoverState::Running {
            self.agents[agent].shim.reported.push(index);
            self.tell_agent(agent, FromShim::Leftovers { worker: number });
        }
    }

    fn terminate_leftovers(&mut self, agent: usize, number: u32, unless_busy: bool) {
        let worker = self.agents[agent].shim.workers[number as usize];
        let rank = self.workers[worker].rank;
        let mut processes = Vec::new();
        if self.workers[worker].leftover == LeftoverState::Running {
            if unless_busy && self.random.one_in(3) {
                return self.tell_agent(agent, FromShim::Leftovers { worker: number });
            }
            processes.push(Leftover { pid: 1, name: "helper".to_owned() });
            let habits = self.scenario.habits[rank.index()].leftover;
            if habits.is_some_and(|habits| !habits.ignores_term) {
                self.soon(Happening::LeftoverExits(worker));
            }
        }
        self.tell_agent(agent, FromShim::LeftoversSignalled { worker: number, processes });
    }

    /// Kills everything and waits for it.
    fn begin_kill(&mut self, agent: usize) {
        let limit = self.now() + KILL_LIMIT;
        self.agents[agent].shim.killing_until = Some(limit);
        for worker in self.agents[agent].shim.workers.clone() {
            self.workers[worker].signals_sent.push(SIGKILL);
            self.signal_worker(worker, SIGKILL);
            if self.workers[worker].leftover == LeftoverState::Running {
                self.soon(Happening::LeftoverExits(worker));
            }
        }
        self.agenda.add(limit, Happening::ShimRuns(agent));
    }

    fn finish_kill(&mut self, agent: usize) {
        self.agents[agent].shim.killing_until = None;
        if !self.agents[agent].shim.has_agent {
            return self.exit_shim(agent);
        }
        while let Some(worker) = self.agents[agent].shim.exits.pop_front() {
            self.reap_worker(agent, worker);
        }
        let shim = &mut self.agents[agent].shim;
        if !std::mem::replace(&mut shim.is_empty_reported, true) {
            let left = self.unkillable_of(agent);
            let unkillable = vec![Leftover { pid: 1, name: "worker".to_owned() }; left];
            self.tell_agent(agent, FromShim::Empty { unkillable });
        }
    }

    /// Reports, once, that no child is left.
    fn report_empty(&mut self, agent: usize) {
        if self.agents[agent].shim.is_empty_reported || self.has_processes(agent) {
            return;
        }
        self.agents[agent].shim.is_empty_reported = true;
        self.tell_agent(agent, FromShim::Empty { unkillable: Vec::new() });
    }

    fn tell_agent(&mut self, agent: usize, message: FromShim) {
        self.agents[agent].packets.push_back(message);
        self.soon(Happening::AgentRuns(agent));
        let (length, bound) = (self.agents[agent].packets.len(), 64 + 8 * self.workers.len());
        if bound < length {
            self.truth.fail(Check::BoundedQueues, || format!("{length} messages of a shim wait"));
        }
    }

    /// The shim exits: the kernel kills its workers.
    pub(super) fn exit_shim(&mut self, agent: usize) {
        if !std::mem::replace(&mut self.agents[agent].shim.is_alive, false) {
            return;
        }
        let host = self.agents[agent].host;
        self.tell(Teller::Agent { host, agent }, || "its shim exits".to_owned());
        for worker in self.workers_of(agent) {
            self.kill_orphan(worker);
        }
        if !self.agents[agent].is_alive {
            // The process that started the agent kills what both have left.
            self.kill_orphans(agent);
        }
        self.soon(Happening::AgentRuns(agent));
    }
}

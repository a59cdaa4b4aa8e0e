//! Faults: what they do to the world, and for which failures they are to blame.

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::incidents::{Blame, Incident, InjectedSilence};
use super::network::Way;
use super::processes::{
    EndReason, LeftoverState, LinkNews, SimulatedHost, SimulatedLauncher, SimulatedWorker,
};
use super::scenario::{InjectedKind, Reach};
use super::story::Teller;
use super::workers::KILLED;
use super::world::{FaultEnd, Happening, Simulation};
use crate::base::{NodeRank, WorkerExit};
use crate::job::OnTerm;
use crate::launch::user::pause::PauseScope;
use crate::wire::ToAgent;

const SIGTERM: i32 = 15;
/// Time after which a machine without power is missed by the peers of its workers.
const PEER_TIMEOUT: Micros = 20 * SECOND;
/// Time that a pod has to end after SIGTERM.
const POD_GRACE: Micros = 30 * SECOND;

impl Simulation {
    /// Injects a fault.
    pub(super) fn inject(&mut self, index: usize) {
        let kind = self.scenario.faults[index].kind;
        if self.injure(kind) {
            self.truth.faults[kind.number()] += 1;
        }
    }

    /// Does what the fault does; false if there is nothing that it could hit now.
    fn injure(&mut self, kind: InjectedKind) -> bool {
        self.tell(Teller::Outside, || {
            format!("FAULT: {}: {kind:?}", InjectedKind::name(kind.number()))
        });
        match kind {
            InjectedKind::WorkerExits { rank, code } => {
                self.fail_worker(rank, WorkerExit::Code(code))
            }
            InjectedKind::WorkerIsKilled { rank, signal } => {
                self.fail_worker(rank, WorkerExit::Signal { signal, core: false })
            }
            InjectedKind::CannotExecute { node } => {
                self.hosts[node].cannot_execute = true;
                self.blame(Blame::NotStarted(NodeRank(node as u32)), Micros::MAX);
                true
            }
            InjectedKind::Refuses { node } => {
                self.hosts[node].refuses = true;
                true
            }
            InjectedKind::NodeIsLate { node, time } => {
                self.hosts[node].reachable_from = time;
                self.disturb(time + 20 * SECOND);
                true
            }
            InjectedKind::DiskIsSlow { node, time } => {
                let host = self.host_of(NodeRank(node as u32));
                self.hosts[host].slow_until = self.now() + time;
                self.disturb(time);
                true
            }
            InjectedKind::AgentIsKilled { node } => self.kill_agent(node),
            InjectedKind::ShimIsKilled { node } => self.kill_shim(node),
            InjectedKind::AgentIsSuspended { node, time } => self.suspend_agent(node, time),
            InjectedKind::ShimIsSuspended { node, time } => self.suspend_shim(node, time),
            InjectedKind::NodeIsSuspended { node, time } => self.suspend_host(node, time),
            InjectedKind::PowerFails { node, back_after } => self.cut_power(node, back_after),
            InjectedKind::LinkBreaks { node } => self.break_link(node),
            InjectedKind::LinkIsCut { node, time } => self.cut_link(node, [true; 2], time),
            InjectedKind::OneWayIsCut { node, way, time } => {
                self.cut_link(node, Way::BOTH.map(|other| other == way), time)
            }
            InjectedKind::LauncherDiskIsSlow { .. }
            | InjectedKind::LauncherIsKilled
            | InjectedKind::LauncherLosesPower
            | InjectedKind::LauncherIsSuspended { .. }
            | InjectedKind::JobIsSuspended { .. }
            | InjectedKind::UserSignals { .. } => self.injure_launcher(kind),
            InjectedKind::NodeIsEvicted { node } => self.evict(node),
            InjectedKind::EverythingIsSuspended { time } => self.suspend_everything(time),
            InjectedKind::LauncherIsReplaced { after } => self.replace_launcher(after),
            InjectedKind::NodeKeepsFailing { node } => {
                let host = self.host_of(NodeRank(node as u32));
                self.hosts[host].keeps_failing = true;
                true
            }
            InjectedKind::MemberIsKilled { node } => self.kill_member(node),
            InjectedKind::ManagerIsKilled => self.kill_manager(),
        }
    }

    fn injure_launcher(&mut self, kind: InjectedKind) -> bool {
        let is_end =
            matches!(kind, InjectedKind::LauncherIsKilled | InjectedKind::LauncherLosesPower);
        if !self.launcher.is_alive || self.launcher.is_finishing && !is_end {
            return false;
        }
        match kind {
            InjectedKind::LauncherDiskIsSlow { time } => {
                self.launcher.slow_until = self.now() + time;
                self.disturb(time);
            }
            InjectedKind::LauncherIsKilled => self.exit_launcher(),
            InjectedKind::LauncherLosesPower => {
                self.launcher.is_alive = false;
                self.truth.launcher_gone_at = Some(self.now());
                for connection in 0..self.connections.len() {
                    // Agents on the launcher's machine are gone with it.
                    self.silence_connection(connection);
                    if self.connections[connection].is_local {
                        self.kill_node_processes(self.connections[connection].agent);
                    }
                }
            }
            InjectedKind::LauncherIsSuspended { time } => {
                self.launcher.suspensions += 1;
                self.blame_silence(Blame::AnyNode, time);
                self.resume_launcher_after(time);
            }
            InjectedKind::JobIsSuspended { time } => return self.suspend_job(time),
            InjectedKind::UserSignals { signal } => {
                self.launcher.signals.push_back(signal);
                self.soon(Happening::LauncherRuns);
            }
            _ => unreachable!("the other faults do not hit the launcher"),
        }
        true
    }

    /// Notes what a verdict may name from now on, until this time has passed.
    fn blame(&mut self, blame: Blame, until: Micros) {
        let at = self.now();
        let until = at.saturating_add(until);
        self.truth.incidents.push(Incident { at, since: at, until, blame });
    }

    /// Notes something that lasts.
    fn disturb(&mut self, time: Micros) {
        self.truth.disturbed_until = self.truth.disturbed_until.max(self.now() + time);
    }

    /// Notes a silence, which is harmless if it is certainly shorter than the lease, alone and
    /// together with the silences before it.
    fn blame_silence(&mut self, blame: Blame, time: Micros) {
        self.disturb(time);
        let margin = self.silence_margin();
        let now = self.now();
        let begin = self.begin_of_silence(|_| true).unwrap_or(now);
        let is_of_same = |of| of == blame || of == Blame::AnyNode;
        let since = self.begin_of_silence(is_of_same).unwrap_or(now);
        self.truth.silences.push(InjectedSilence { of: blame, begin, end: now + time });
        if self.scenario.lease < now + time - begin + margin {
            let until = now.saturating_add(time + 2 * self.scenario.lease + margin);
            self.truth.incidents.push(Incident { at: now, since, until, blame });
        }
    }

    /// Time after a silence until the launcher has certainly received something.
    fn silence_margin(&self) -> Micros {
        2 * self.scenario.heartbeat + 2 * SECOND
    }

    /// When the present silence began, or the one that has just ended, if it is one of these.
    fn begin_of_silence(&self, is_it: impl Fn(Blame) -> bool) -> Option<Micros> {
        let is_present = |silence: &&InjectedSilence| {
            self.now() < silence.end + self.silence_margin() && is_it(silence.of)
        };
        self.truth.silences.iter().filter(is_present).map(|silence| silence.begin).min()
    }

    /// Notes the loss of a node. For the launcher it may have begun with a silence of the node.
    fn blame_loss(&mut self, node: NodeRank) {
        let is_of_node = |of| of == Blame::Node(node) || of == Blame::AnyNode;
        let at = self.now();
        let since = self.begin_of_silence(is_of_node).unwrap_or(at);
        let until = at + 2 * self.scenario.lease + 30 * SECOND;
        self.truth.incidents.push(Incident { at, since, until, blame: Blame::Node(node) });
    }

    /// Suspends all machines for the same time, after which no process has failed.
    fn suspend_everything(&mut self, time: Micros) -> bool {
        if !self.launcher.is_alive || self.everything_suspended_since.is_some() {
            return false;
        }
        self.everything_suspended_since = Some(self.now());
        self.disturb(time);
        self.launcher.suspensions += 1;
        for host in &mut self.hosts {
            host.suspensions += 1;
        }
        self.after(time, Happening::FaultEnds(FaultEnd::EverythingResumes));
        true
    }

    fn resume_everything(&mut self) {
        if let Some(since) = self.everything_suspended_since.take() {
            self.delay_incidents(since);
        }
        self.truth.gave_up_suspended |= self.launcher.job.is_stopping();
        for host in 0..self.hosts.len() {
            self.resume_host(host);
        }
        self.launcher.suspensions = self.launcher.suspensions.saturating_sub(1);
        self.run_launcher();
    }

    /// What happened before the end of a suspension of the launcher is noticed later by its length.
    pub(super) fn delay_incidents(&mut self, since: Micros) {
        let time = self.now() - since;
        let open = self.truth.incidents.iter_mut().filter(|incident| since <= incident.until);
        open.for_each(|incident| incident.until = incident.until.saturating_add(time));
    }

    /// Kills the launcher; the system that starts the nodes starts another one.
    fn replace_launcher(&mut self, after: Micros) -> bool {
        let may_be_replaced = 0 < self.scenario.policy.restarts_max;
        let is_running = self.launcher.is_alive && !self.launcher.is_finishing;
        if self.scenario.reach != Reach::Dial || !may_be_replaced || !is_running {
            return false;
        }
        self.launcher.will_be_replaced = true;
        self.exit_launcher();
        for agent in 0..self.agents.len() {
            if self.hosts[self.agents[agent].host].node == NodeRank(0) {
                self.kill_node_processes(agent);
            }
        }
        self.disturb(after);
        self.after(after, Happening::FaultEnds(FaultEnd::LauncherIsReplaced));
        true
    }

    /// Another launcher starts, on another machine.
    fn start_other_launcher(&mut self) {
        let ahead = self.random.between(0, 1_000 * SECOND);
        self.hosts.push(SimulatedHost::new(NodeRank(0), ahead));
        let number = self.launcher.number + 1;
        self.launcher =
            SimulatedLauncher::new(&self.scenario, self.mistake, self.instant(self.now()));
        let now = self.now();
        self.launcher.number = number;
        self.launcher.timeout_at = self.scenario.timeout.map(|timeout| now + timeout);
        self.truth.launcher_gone_at = None;
        self.truth.previous = None;
        self.truth.membership.begin_launcher();
        self.truth.noticed_at = None;
        self.truth.epoch_began_at = now;
        self.truth.refusals = 0;
        self.begin_launcher();
    }

    /// The agent that serves a node now.
    fn agent_of(&self, node: usize) -> Option<usize> {
        let host = self.host_of(NodeRank(node as u32));
        self.agents.iter().rposition(|agent| agent.host == host && agent.is_alive)
    }

    fn fail_worker(&mut self, rank: usize, exit: WorkerExit) -> bool {
        let is_it = |worker: &SimulatedWorker| worker.rank.index() == rank && worker.is_alive;
        let Some(worker) = self.workers.iter().rposition(is_it) else { return false };
        self.exit_worker(worker, exit, EndReason::Fault);
        true
    }

    fn kill_agent(&mut self, node: usize) -> bool {
        let Some(agent) = self.agent_of(node) else { return false };
        self.blame_loss(NodeRank(node as u32));
        let has_workers = self.has_workers(agent);
        // Only a parent learns which signal it was.
        let is_child = self.scenario.reach != Reach::Ssh;
        let exit = is_child.then_some(WorkerExit::Signal { signal: 9, core: false });
        self.exit_agent(agent, exit);
        if self.agents[agent].has_member {
            self.after(500 * MS, Happening::MemberKillsAgent(agent));
        }
        if has_workers {
            let epoch = self.agents[agent].epoch;
            self.fail_group(agent, epoch, 500 * MS);
        }
        true
    }

    /// Kills the process that connects a node. In a pod it is the first process, with which all others end; under a
    /// process manager the agent is left, and notices the end of its link.
    fn kill_member(&mut self, node: usize) -> bool {
        let rank = NodeRank(node as u32);
        let Some(agent) = self.agent_of(node).filter(|agent| self.agents[*agent].has_member) else {
            return false;
        };
        self.blame_loss(rank);
        if self.scenario.reach == Reach::Managed {
            self.agents[agent].has_member = false;
            self.break_connection(self.agents[agent].connection);
            return true;
        }
        let host = self.agents[agent].host;
        self.hosts[host].is_gone = true;
        self.end_node_processes(host);
        let time = self.random.between(SECOND, 30 * SECOND);
        self.disturb(time);
        self.after(time, Happening::FaultEnds(FaultEnd::PodIsReplaced(rank)));
        true
    }

    /// Kills a process manager, with which all processes end that it has started; it starts no more.
    fn kill_manager(&mut self) -> bool {
        if !self.launcher.is_alive || self.launcher.is_finishing {
            return false;
        }
        for node in 0..self.scenario.workers.len() {
            let rank = NodeRank(node as u32);
            self.blame_loss(rank);
            if std::mem::replace(&mut self.launcher.nodes[node].is_awaited, false) {
                self.report_unreachable(rank, self.launcher.table.link(rank), false);
            }
            self.end_node_processes(self.host_of(rank));
        }
        true
    }

    /// Kills all processes of remuda on a machine, which is missed by the others at once.
    fn end_node_processes(&mut self, host: usize) {
        for agent in 0..self.agents.len() {
            if self.agents[agent].host != host || !self.agents[agent].is_alive {
                continue;
            }
            let (epoch, has_workers) = (self.agents[agent].epoch, self.has_workers(agent));
            self.kill_node_processes(agent);
            if has_workers {
                self.fail_group(agent, epoch, 500 * MS);
            }
        }
    }

    /// Whether workers of the present epoch run under this agent: without them, its end is no loss to
    /// their peers.
    fn has_workers(&self, agent: usize) -> bool {
        let epoch = self.agents[agent].epoch;
        let is_one = |worker: &SimulatedWorker| {
            worker.agent == agent && worker.epoch == epoch && worker.is_alive
        };
        self.workers.iter().any(is_one)
    }

    fn kill_shim(&mut self, node: usize) -> bool {
        let Some(agent) = self.agent_of(node) else { return false };
        if !self.agents[agent].shim.is_alive {
            return false;
        }
        self.blame_loss(NodeRank(node as u32));
        self.exit_shim(agent);
        true
    }

    fn suspend_agent(&mut self, node: usize, time: Micros) -> bool {
        let Some(agent) = self.agent_of(node) else { return false };
        self.blame_silence(Blame::Node(NodeRank(node as u32)), time);
        self.agents[agent].suspensions += 1;
        self.after(time, Happening::FaultEnds(FaultEnd::AgentResumes(agent)));
        true
    }

    fn suspend_shim(&mut self, node: usize, time: Micros) -> bool {
        let Some(agent) = self.agent_of(node) else { return false };
        self.blame_silence(Blame::Node(NodeRank(node as u32)), time);
        self.agents[agent].shim.suspensions += 1;
        self.after(time, Happening::FaultEnds(FaultEnd::ShimResumes(agent)));
        true
    }

    fn suspend_host(&mut self, node: usize, time: Micros) -> bool {
        if !self.is_remote(node) {
            return false;
        }
        let host = self.host_of(NodeRank(node as u32));
        self.blame_silence(Blame::Node(NodeRank(node as u32)), time);
        self.hosts[host].suspensions += 1;
        self.after(time, Happening::FaultEnds(FaultEnd::HostResumes(host)));
        true
    }

    /// Whether the node is another machine than the launcher's.
    fn is_remote(&self, node: usize) -> bool {
        match self.scenario.reach {
            Reach::Local => false,
            Reach::Ssh | Reach::Managed => true,
            Reach::Dial => node != 0,
        }
    }

    fn cut_power(&mut self, node: usize, back_after: Option<Micros>) -> bool {
        let rank = NodeRank(node as u32);
        let host = self.host_of(rank);
        if !self.is_remote(node) || !self.hosts[host].has_power {
            return false;
        }
        self.blame_loss(rank);
        self.hosts[host].has_power = false;
        for connection in 0..self.connections.len() {
            if self.connections[connection].host == host {
                self.silence_connection(connection);
            }
        }
        for agent in (0..self.agents.len())
            .filter(|agent| self.agents[*agent].host == host)
            .collect::<Vec<_>>()
        {
            let epoch = self.agents[agent].epoch;
            if self.agents[agent].is_alive && self.has_workers(agent) {
                self.fail_group(agent, epoch, PEER_TIMEOUT);
            }
            self.agents[agent].is_alive = false;
            self.agents[agent].shim.is_alive = false;
            for worker in self.workers_of(agent) {
                self.workers[worker].is_alive = false;
                self.workers[worker].leftover = LeftoverState::Exited;
            }
        }
        if let Some(time) = back_after {
            self.disturb(time);
            self.after(time, Happening::FaultEnds(FaultEnd::PowerReturns(rank)));
        }
        true
    }

    fn break_link(&mut self, node: usize) -> bool {
        let Some(agent) = self.agent_of(node).filter(|_| self.is_remote(node)) else {
            return false;
        };
        self.blame_loss(NodeRank(node as u32));
        self.break_connection(self.agents[agent].connection);
        true
    }

    fn cut_link(&mut self, node: usize, ways: [bool; 2], time: Micros) -> bool {
        if !self.is_remote(node) {
            return false;
        }
        let host = self.host_of(NodeRank(node as u32));
        self.blame_silence(Blame::Node(NodeRank(node as u32)), time + SECOND);
        for way in Way::BOTH {
            self.hosts[host].cuts[way.index()] += u32::from(ways[way.index()]);
        }
        self.after(time, Happening::FaultEnds(FaultEnd::LinkHeals { host, ways }));
        true
    }

    fn suspend_job(&mut self, time: Micros) -> bool {
        let now = self.instant(self.now());
        let table = &self.launcher.table;
        let nodes = table.all().filter(|node| !table.is_lost(*node));
        if !self.launcher.pause.start(now, nodes.map(PauseScope::Node)) {
            return false;
        }
        self.launcher.pause_time = time;
        self.disturb(time);
        self.truth.was_suspended = true;
        self.send_to_all(&ToAgent::Pause);
        self.soon(Happening::LauncherRuns);
        true
    }

    /// SIGTERM to the process of a node that has connected by itself.
    fn evict(&mut self, node: usize) -> bool {
        let rank = NodeRank(node as u32);
        if matches!(self.scenario.reach, Reach::Local | Reach::Ssh) || !self.launcher.is_alive {
            return false;
        }
        if !self.connects_by_itself(rank) {
            self.launcher.signals.push_back(SIGTERM);
            self.soon(Happening::LauncherRuns);
            return true;
        }
        let host = self.host_of(rank);
        if self.hosts[host].is_gone || !self.hosts[host].has_power {
            return false;
        }
        self.blame(Blame::Evicted(rank), Micros::MAX / 2);
        self.blame(Blame::Node(rank), Micros::MAX / 2);
        self.hosts[host].is_gone = self.scenario.policy.on_term == OnTerm::EndNode;
        if self.launcher.nodes[node].connection.is_some() {
            let link = self.launcher.table.link(rank);
            self.queue_news(rank, link, LinkNews::Signal(SIGTERM));
        }
        if self.hosts[host].is_gone {
            self.disturb(POD_GRACE + 30 * SECOND);
            self.after(POD_GRACE, Happening::FaultEnds(FaultEnd::PodEnds(host)));
            let time = self.random.between(SECOND, 30 * SECOND);
            self.after(time, Happening::FaultEnds(FaultEnd::PodIsReplaced(rank)));
        }
        true
    }

    /// Something that lasted ends.
    pub(super) fn end_fault(&mut self, end: FaultEnd) {
        self.tell(Teller::Outside, || format!("{end:?}"));
        match end {
            FaultEnd::AgentResumes(agent) => {
                self.agents[agent].suspensions -= 1;
                self.run_agent(agent);
            }
            FaultEnd::ShimResumes(agent) => {
                let shim = &mut self.agents[agent].shim;
                shim.suspensions = shim.suspensions.saturating_sub(1);
                self.run_shim(agent);
            }
            FaultEnd::HostResumes(host) => self.resume_host(host),
            FaultEnd::LinkHeals { host, ways } => {
                for way in Way::BOTH.into_iter().filter(|way| ways[way.index()]) {
                    self.hosts[host].cuts[way.index()] -= 1;
                    self.heal(host, way);
                }
            }
            FaultEnd::LauncherResumes { number } => self.resume_launcher(number),
            FaultEnd::LauncherIsReplaced => self.start_other_launcher(),
            FaultEnd::EverythingResumes => self.resume_everything(),
            FaultEnd::JobResumes => self.resume_job(),
            FaultEnd::PowerReturns(node) => self.return_power(node),
            FaultEnd::PodIsReplaced(node) => self.add_host(node),
            FaultEnd::PodEnds(host) => {
                for agent in 0..self.agents.len() {
                    if self.agents[agent].host == host {
                        self.kill_node_processes(agent);
                    }
                }
            }
        }
    }

    fn resume_host(&mut self, host: usize) {
        self.hosts[host].suspensions = self.hosts[host].suspensions.saturating_sub(1);
        if 0 < self.hosts[host].suspensions {
            return;
        }
        for worker in 0..self.workers.len() {
            let SimulatedWorker { host: of, is_stopped, pending_exit, .. } = &self.workers[worker];
            // SIGKILL ends a stopped process, too.
            let is_killed = pending_exit.as_ref().is_some_and(|(exit, _)| *exit == KILLED);
            if *of == host && (!is_stopped || is_killed) {
                self.release_exit(worker);
            }
        }
        for agent in (0..self.agents.len())
            .filter(|agent| self.agents[*agent].host == host)
            .collect::<Vec<_>>()
        {
            self.run_shim(agent);
            self.run_agent(agent);
        }
    }

    /// A machine is there again, with nothing running; where a system starts the nodes, it is
    /// another machine.
    fn return_power(&mut self, node: NodeRank) {
        match self.scenario.reach {
            Reach::Dial => self.add_host(node),
            Reach::Local | Reach::Ssh | Reach::Managed => {
                let host = self.host_of(node);
                self.hosts[host].has_power = true;
            }
        }
    }

    /// Another machine takes the place of a node.
    fn add_host(&mut self, node: NodeRank) {
        let ahead = self.random.between(0, 1_000 * SECOND);
        self.hosts.push(SimulatedHost::new(node, ahead));
        self.after(SECOND, Happening::HostDials(self.hosts.len() - 1));
    }
}

//! How the launcher reaches its nodes: as children, by ssh, or by connections of the nodes.

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::network::{Parcel, Pipe, SimulatedLink, Way};
use super::processes::{LauncherEvent, LauncherNode, LinkNews};
use super::scenario::Reach;
use super::story::Teller;
use super::world::{Happening, Simulation};
use crate::base::{Epoch, NodeRank, WorkerExit};
use crate::wire::{self, ClockOffset, Decoder, LauncherHello, ToAgent};

/// After this time, ssh gives up a connection.
const SSH_TIMEOUT: Micros = 10 * SECOND;
/// Pause between two attempts of a node to connect.
const DIAL_PAUSE: Micros = SECOND;

/// The launcher's greeting of a node.
pub(super) fn hello_to(node: NodeRank) -> ToAgent {
    ToAgent::Hello(LauncherHello {
        version: wire::VERSION,
        build: String::new(),
        job: "job".to_owned(),
        node,
    })
}

impl Simulation {
    /// Begins to make a link to a node, in place of an earlier one.
    pub(super) fn connect(&mut self, node: NodeRank, epoch: Epoch) {
        let link = self.launcher.table.link(node);
        let mut fresh = LauncherNode {
            epoch,
            connection: None,
            clock: ClockOffset::default(),
            hello_sent_at: self.now(),
            is_awaited: false,
            queue: Vec::new(),
        };
        fresh.queue.push(wire::encode(epoch, &hello_to(node)));
        match self.launcher.nodes.get_mut(node.index()) {
            Some(place) => *place = fresh,
            None => self.launcher.nodes.push(fresh),
        }
        match self.scenario.reach {
            Reach::Dial if node != NodeRank(0) => {
                self.launcher.nodes[node.index()].is_awaited = true;
                if self.scenario.policy.elastic.is_none() {
                    let limit = self.join_deadline();
                    self.agenda.add(limit, Happening::JoinLimit { node, link });
                }
            }
            Reach::Managed => {
                self.launcher.nodes[node.index()].is_awaited = true;
                let limit = self.join_deadline().max(self.now());
                self.agenda.add(limit, Happening::JoinLimit { node, link });
                let time = self.random.between(20 * MS, 2 * SECOND);
                self.after(time, Happening::ManagerStarts { node, link });
            }
            Reach::Local | Reach::Dial => {
                let host = self.host_of(node);
                self.establish(node, host, true);
                let now = self.instant(self.now());
                self.launcher.table.on_message(node, now);
            }
            Reach::Ssh => {
                let pause = self.launcher.table.retry_pause(node).as_micros() as Micros;
                let time = self.random.between(20 * MS, 2 * SECOND) + pause;
                self.after(time, Happening::SshConnects { node, link });
            }
        }
    }

    /// The machine that stands for a node now.
    pub(super) fn host_of(&self, node: NodeRank) -> usize {
        self.hosts.iter().rposition(|host| host.node == node).expect("every node has a host")
    }

    /// Starts an agent and connects it.
    fn establish(&mut self, node: NodeRank, host: usize, is_local: bool) {
        let (connection, link) = (self.connections.len(), self.launcher.table.link(node));
        let epoch = self.launcher.nodes[node.index()].epoch;
        self.connections.push(SimulatedLink {
            node,
            host,
            agent: self.agents.len(),
            link,
            launcher: self.launcher.number,
            is_local,
            pipes: [Pipe::default(), Pipe::default()],
            decoder: Decoder::for_epoch(epoch),
            epoch,
            is_readable: false,
            has_ended: false,
            exit: None,
            is_over: false,
        });
        self.start_agent(host, connection);
        let place = &mut self.launcher.nodes[node.index()];
        place.connection = Some(connection);
        for frame in std::mem::take(&mut place.queue) {
            self.send(connection, Way::ToNode, Parcel::Bytes(frame));
        }
    }

    /// A login of ssh succeeds or is not answered.
    pub(super) fn connect_by_ssh(&mut self, node: NodeRank, link: u32) {
        if !self.launcher.is_alive || !self.launcher.table.is_current(node, link) {
            return;
        }
        let host = self.host_of(node);
        if !self.hosts[host].is_reachable(self.now()) {
            return self.after(SSH_TIMEOUT, Happening::SshTimesOut { node, link });
        }
        self.establish(node, host, false);
        self.queue_news(node, link, LinkNews::Connected);
    }

    /// A process manager has started a process on a node, which connects; or it says that the node is down.
    pub(super) fn connect_by_manager(&mut self, node: NodeRank, link: u32) {
        let is_current = self.launcher.is_alive && self.launcher.table.is_current(node, link);
        if !is_current || !self.launcher.nodes[node.index()].is_awaited {
            return;
        }
        let host = self.host_of(node);
        if !self.hosts[host].has_power {
            self.launcher.nodes[node.index()].is_awaited = false;
            return self.report_unreachable(node, link, false);
        }
        if 0 < self.launcher.suspensions || !self.hosts[host].is_reachable(self.now()) {
            return self.after(DIAL_PAUSE, Happening::ManagerStarts { node, link });
        }
        self.launcher.nodes[node.index()].is_awaited = false;
        self.establish(node, host, false);
        self.queue_news(node, link, LinkNews::Connected);
    }

    /// Whether a process on the node connects to the launcher.
    pub(super) fn connects_by_itself(&self, node: NodeRank) -> bool {
        match self.scenario.reach {
            Reach::Local | Reach::Ssh => false,
            Reach::Dial => node != NodeRank(0),
            Reach::Managed => true,
        }
    }

    /// No link could be made.
    pub(super) fn report_unreachable(&mut self, node: NodeRank, link: u32, is_late: bool) {
        self.truth.refusals += 1;
        self.queue_news(node, link, LinkNews::Unreachable { is_late });
    }

    /// Puts an event of a link into the launcher's queue.
    pub(super) fn queue_news(&mut self, node: NodeRank, link: u32, news: LinkNews) {
        if self.launcher.is_alive {
            self.launcher.events.push_back(LauncherEvent { node, link, news });
            self.soon(Happening::LauncherRuns);
        }
    }

    /// A machine connects to node 0, if it is expected there; else it tries again.
    pub(super) fn dial(&mut self, host: usize) {
        let node = self.hosts[host].node;
        let has_agent = self.agents.iter().any(|agent| agent.host == host && agent.is_alive);
        let is_over = if self.launcher.will_be_replaced {
            false
        } else {
            !self.launcher.is_alive || self.launcher.is_finishing
        };
        let machine = &self.hosts[host];
        if has_agent || is_over || machine.is_gone || !machine.has_power {
            return;
        }
        let is_awaited = self.launcher.is_alive
            && self.launcher.suspensions == 0
            && self.launcher.nodes.get(node.index()).is_some_and(|place| place.is_awaited);
        if !is_awaited || !machine.is_reachable(self.now()) {
            return self.after(DIAL_PAUSE, Happening::HostDials(host));
        }
        self.launcher.nodes[node.index()].is_awaited = false;
        let link = self.launcher.table.link(node);
        let (next_epoch, free) = (machine.next_epoch, machine.free_restarts);
        if Epoch(0) < next_epoch {
            self.queue_news(node, link, LinkNews::EarlierEpochs(next_epoch, free));
        }
        self.establish(node, host, false);
        self.queue_news(node, link, LinkNews::Connected);
    }

    /// A machine whose agent has exited connects again.
    pub(super) fn dial_again(&mut self, host: usize) {
        let is_dial = self.scenario.reach == Reach::Dial;
        if is_dial && self.connects_by_itself(self.hosts[host].node) {
            self.after(DIAL_PAUSE, Happening::HostDials(host));
        }
    }

    /// Until when nodes that connect by themselves are waited for.
    fn join_deadline(&self) -> Micros {
        self.micros(self.launcher.table.asked_at()) + self.scenario.join_limit
    }

    /// The time in which a node must join is over.
    pub(super) fn reach_join_limit(&mut self, node: NodeRank, link: u32) {
        if self.now() < self.join_deadline() {
            // Another launcher has replaced the one that set the limit.
            return;
        }
        let place = &mut self.launcher.nodes[node.index()];
        if self.launcher.table.is_current(node, link)
            && std::mem::replace(&mut place.is_awaited, false)
        {
            self.report_unreachable(node, link, true);
        }
    }

    /// A machine that connects by itself ends an agent that does not exit after its link.
    pub(super) fn let_member_end_agent(&mut self, agent: usize) {
        if self.agents[agent].has_member {
            let grace = self.scenario.policy.grace.as_micros() as Micros;
            self.after(grace + 15 * SECOND, Happening::MemberKillsAgent(agent));
        }
    }

    /// The process that connects a node, if it still runs, ends an agent that does not exit.
    pub(super) fn end_agent_by_member(&mut self, agent: usize) {
        if self.agents[agent].has_member {
            self.kill_node_processes(agent);
        }
    }

    /// Kills an agent, its shim and everything that they have started.
    pub(super) fn kill_node_processes(&mut self, agent: usize) {
        if !self.agents[agent].is_alive && !self.agents[agent].shim.is_alive {
            return;
        }
        let host = self.agents[agent].host;
        self.tell(Teller::Agent { host, agent }, || "is killed with all its processes".to_owned());
        let killed = WorkerExit::Signal { signal: 9, core: false };
        self.exit_agent(agent, Some(killed));
        self.exit_shim(agent);
        self.kill_orphans(agent);
    }
}

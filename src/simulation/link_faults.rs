//! Faults of links, and of the processes that hold them: an ssh client of the launcher, the member of
//! a node that has joined by itself.

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::incidents::{Blame, Incident};
use super::network::{Parcel, Way};
use super::processes::Member;
use super::scenario::Reach;
use super::story::Teller;
use super::world::{FaultEnd, Happening, Simulation};
use crate::base::{Epoch, NodeRank};

/// First timeout of a sender whose message was not confirmed; the next ones are twice as long.
const RETRANSMISSION_MIN: Micros = 200 * MS;
/// A message is lost at most this many times.
const LOSSES_MAX: u32 = 6;
/// Delay of a message that is lost so often.
const LOSS_DELAY_MAX: Micros = RETRANSMISSION_MIN * ((1 << LOSSES_MAX) - 1);

impl Simulation {
    /// Whether the node is another machine than the launcher's.
    pub(super) fn is_remote(&self, node: usize) -> bool {
        match self.scenario.reach {
            Reach::Local => false,
            Reach::Ssh => true,
            Reach::Dial => node != 0,
        }
    }

    /// The connection to a node breaks.
    pub(super) fn break_link(&mut self, node: usize) -> bool {
        let Some(agent) = self.agent_of(node).filter(|_| self.is_remote(node)) else {
            return false;
        };
        self.blame(Blame::Node(NodeRank(node as u32)), self.node_blame_time());
        self.break_connection(self.agents[agent].connection);
        true
    }

    /// Cuts the link of a node, in some directions, until it heals.
    pub(super) fn cut_link(&mut self, node: usize, ways: [bool; 2], time: Micros) -> bool {
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

    /// Messages over the link of a node are lost now and then, and sent again later; those behind them
    /// wait.
    pub(super) fn lose_packets(&mut self, node: usize, one_in: usize, time: Micros) -> bool {
        if !self.is_remote(node) {
            return false;
        }
        let (rank, until) = (NodeRank(node as u32), self.now() + time);
        self.blame_delay(rank, LOSS_DELAY_MAX, time);
        let host = self.host_of(rank);
        let latency = &mut self.hosts[host].latency;
        (latency.lossy_until, latency.lost_one_in) = (until, one_in);
        true
    }

    /// Messages over the link of a node are late by up to a delay.
    pub(super) fn slow_link(&mut self, node: usize, delay: Micros, time: Micros) -> bool {
        if !self.is_remote(node) {
            return false;
        }
        let (rank, until) = (NodeRank(node as u32), self.now() + time);
        self.blame_delay(rank, delay, time);
        let host = self.host_of(rank);
        let latency = &mut self.hosts[host].latency;
        (latency.slow_until, latency.delay) = (until, delay);
        true
    }

    /// The delay of a message that is sent to a host or from it now, beside the usual one.
    pub(super) fn extra_delay(&mut self, host: usize) -> Micros {
        let (now, latency) = (self.now(), self.hosts[host].latency);
        let mut delay = 0;
        if now < latency.slow_until {
            delay = self.random.between(latency.delay / 2, latency.delay);
        }
        if now < latency.lossy_until {
            let losses = (0..LOSSES_MAX).take_while(|_| self.random.one_in(latency.lost_one_in));
            delay += RETRANSMISSION_MIN * ((1 << losses.count()) - 1);
        }
        delay
    }

    /// Notes that messages of a node may be late by a delay, for a time. The silence between two of
    /// them is at most as long as the delay, and twice as long when an epoch begins: the launcher
    /// ignores what the agent sends before it knows of the epoch. Only another silence before makes it
    /// longer.
    fn blame_delay(&mut self, node: NodeRank, delay: Micros, time: Micros) {
        let (now, margin) = (self.now(), 2 * self.scenario.heartbeat + 2 * SECOND);
        self.disturb(time + delay);
        self.truth.delay_max = self.truth.delay_max.max(delay);
        let (begin, end) = self.silent_since(margin).unwrap_or((now, now));
        self.truth.silences.push((begin, now + time + delay));
        if self.scenario.lease < end.max(now) + 2 * delay - begin + margin {
            let until = now + time + delay + 2 * self.scenario.lease + margin;
            let blame = Blame::Node(node);
            self.truth.incidents.push(Incident { at: now, until, lasts: true, blame });
        }
    }

    /// SIGKILL to the ssh client that logs in to a node, or through which the link to it runs.
    pub(super) fn kill_ssh_client(&mut self, node: usize) -> bool {
        let rank = NodeRank(node as u32);
        let is_used = self.launcher.is_alive && !self.launcher.is_finishing;
        if self.scenario.reach != Reach::Ssh || !is_used {
            return false;
        }
        let link = self.launcher.table.link(rank);
        let place = &mut self.launcher.nodes[node];
        if std::mem::replace(&mut place.is_awaited, false) {
            self.report_unreachable(rank, link, false);
            return true;
        }
        let Some(connection) = place.connection else { return false };
        if self.connections[connection].is_over {
            return false;
        }
        self.blame(Blame::Node(rank), self.node_blame_time());
        // The kernel still sends what the client has written, then the end. What it has not read is
        // lost.
        self.send(connection, Way::ToNode, Parcel::End(None));
        let pipe = &mut self.connections[connection].pipes[Way::FromNode.index()];
        (pipe.is_dead, pipe.stalled) = (true, 0);
        pipe.sent.clear();
        self.deliver_to_launcher(connection, Parcel::End(None));
        true
    }

    /// Whether the process that has started an agent still is there to end it.
    pub(super) fn has_member(&self, agent: usize) -> bool {
        let (host, number) = (self.agents[agent].host, self.agents[agent].member);
        let is_joined = self.scenario.reach == Reach::Dial && self.hosts[host].node != NodeRank(0);
        is_joined && self.hosts[host].member == Member { number, is_alive: true }
    }

    /// SIGKILL to the process of a node that has joined by itself. Its agent reads the end of the link
    /// at once, the launcher when the kernel has told it.
    pub(super) fn kill_member(&mut self, node: usize, back_after: Option<Micros>) -> bool {
        let rank = NodeRank(node as u32);
        let host = self.host_of(rank);
        let machine = &mut self.hosts[host];
        let is_joined = self.scenario.reach == Reach::Dial && node != 0;
        if !is_joined || !machine.has_power || machine.is_gone || !machine.member.is_alive {
            return false;
        }
        machine.member.is_alive = false;
        self.blame(Blame::Node(rank), self.node_blame_time());
        if let Some(agent) = self.agent_of(node) {
            let connection = self.agents[agent].connection;
            self.send(connection, Way::FromNode, Parcel::End(None));
            self.connections[connection].pipes[Way::ToNode.index()].is_dead = true;
            self.deliver_to_agent(connection, Parcel::End(None));
        }
        if let Some(time) = back_after {
            self.disturb(time);
            self.after(time, Happening::FaultEnds(FaultEnd::MemberIsReplaced(host)));
        }
        true
    }

    /// Another process joins the job as the same node. It does not know of earlier epochs, and the agent
    /// of the one before it may still be stopping its workers.
    pub(super) fn start_other_member(&mut self, host: usize) {
        let machine = &mut self.hosts[host];
        machine.member = Member { number: machine.member.number + 1, is_alive: true };
        machine.next_epoch = Epoch(0);
        self.tell(Teller::Outside, || format!("another process joins on host {host}"));
        self.dial(host);
    }
}

//! What is sent over connections, and how connections end.

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::incidents::Check;
use super::network::{Parcel, Way};
use super::world::{Happening, Simulation};
use crate::base::WorkerExit;

/// Longest delay between the end of a cut and the first byte: the sender tries again at intervals.
const RETRANSMISSION_MAX: Micros = 500 * MS;
/// Time after which a kernel ends a connection to a machine without power. In truth it is two hours;
/// only the agents of a job that was suspended wait for it.
pub(super) const KEEPALIVE: Micros = 600 * SECOND;

impl Simulation {
    /// Sends over a connection; what is sent over one that has ended is lost.
    pub(super) fn send(&mut self, connection: usize, way: Way, parcel: Parcel) {
        let ended = &self.connections[connection].pipes[way.index()];
        if ended.is_closed || ended.is_dead {
            return;
        }
        let is_cut = self.is_cut(connection, way);
        let bound = self.frames_max();
        let pipe = &mut self.connections[connection].pipes[way.index()];
        pipe.is_closed = matches!(parcel, Parcel::End(_));
        pipe.sent.push_back(parcel);
        let length = pipe.sent.len();
        if bound < length {
            self.truth.fail(Check::BoundedQueues, || {
                format!("connection {connection} {way:?} holds {length} messages")
            });
        }
        if is_cut {
            self.connections[connection].pipes[way.index()].stalled += 1;
        } else {
            self.schedule_arrival(connection, way, 0);
        }
    }

    /// Most messages that may wait in one direction of a connection: heartbeats for the length of
    /// two leases or of a suspension, and a few for each worker and request.
    pub(super) fn frames_max(&self) -> usize {
        let silence = 2 * self.scenario.lease + self.launcher.pause_total;
        let heartbeats = 2 * (silence / self.scenario.heartbeat) as usize;
        heartbeats + 8 * self.scenario.habits.len() + 32
    }

    fn schedule_arrival(&mut self, connection: usize, way: Way, later: Micros) {
        let is_local = self.connections[connection].is_local;
        let delay_max = if is_local { 100 } else { self.scenario.delay_max };
        let arrival = self.now() + later + self.random.between(20, delay_max);
        let pipe = &mut self.connections[connection].pipes[way.index()];
        pipe.last_arrival = pipe.last_arrival.max(arrival);
        let arrival = pipe.last_arrival;
        self.agenda.add(arrival, Happening::Arrives { connection, way });
    }

    fn is_cut(&self, connection: usize, way: Way) -> bool {
        let connection = &self.connections[connection];
        !connection.is_local && 0 < self.hosts[connection.host].cuts[way.index()]
    }

    /// Delivers the next parcel.
    pub(super) fn arrive(&mut self, connection: usize, way: Way) {
        let is_cut = self.is_cut(connection, way);
        let pipe = &mut self.connections[connection].pipes[way.index()];
        if pipe.is_dead {
            pipe.sent.clear();
            return;
        }
        if is_cut {
            pipe.stalled += 1;
            return;
        }
        let Some(parcel) = pipe.sent.pop_front() else { return };
        match way {
            Way::ToNode => self.deliver_to_agent(connection, parcel),
            Way::FromNode => self.deliver_to_launcher(connection, parcel),
        }
    }

    fn deliver_to_agent(&mut self, connection: usize, parcel: Parcel) {
        let index = self.connections[connection].agent;
        let agent = &mut self.agents[index];
        if !agent.is_alive || !agent.is_link_open {
            return;
        }
        match parcel {
            Parcel::Bytes(bytes) => agent.decoder.push(&bytes),
            Parcel::End(_) => agent.has_link_ended = true,
        }
        agent.is_link_readable = true;
        self.run_agent(index);
        if self.agents[index].has_link_ended {
            self.let_member_end_agent(index);
        }
    }

    fn deliver_to_launcher(&mut self, index: usize, parcel: Parcel) {
        let connection = &mut self.connections[index];
        if !self.launcher.is_alive || connection.is_over {
            return;
        }
        match parcel {
            Parcel::Bytes(bytes) => connection.decoder.push(&bytes),
            Parcel::End(exit) => (connection.has_ended, connection.exit) = (true, exit),
        }
        if !std::mem::replace(&mut connection.is_readable, true) {
            self.launcher.readable.push_back(index);
        }
        self.run_launcher();
    }

    /// The launcher closes its end.
    pub(super) fn close_by_launcher(&mut self, connection: usize) {
        self.connections[connection].is_over = true;
        self.send(connection, Way::ToNode, Parcel::End(None));
        self.connections[connection].pipes[Way::FromNode.index()].is_dead = true;
    }

    /// The agent's end is closed, because it has exited.
    pub(super) fn close_by_agent(&mut self, connection: usize, exit: Option<WorkerExit>) {
        self.send(connection, Way::FromNode, Parcel::End(exit));
        self.connections[connection].pipes[Way::ToNode.index()].is_dead = true;
    }

    /// The connection breaks: what is on its way is lost, and both ends notice it.
    pub(super) fn break_connection(&mut self, connection: usize) {
        for way in Way::BOTH {
            let pipe = &mut self.connections[connection].pipes[way.index()];
            pipe.sent.clear();
            pipe.stalled = 0;
            // An end that was on its way is lost too; the break takes its place.
            pipe.is_closed = false;
            self.send(connection, way, Parcel::End(None));
        }
    }

    /// One end has vanished without a message. The kernel at the other end notices it much later.
    pub(super) fn silence_connection(&mut self, connection: usize) {
        for pipe in &mut self.connections[connection].pipes {
            pipe.is_dead = true;
            pipe.sent.clear();
        }
        self.after(KEEPALIVE, Happening::KeepaliveFails(connection));
    }

    /// The kernels end a connection whose other end does not answer.
    pub(super) fn end_by_keepalive(&mut self, connection: usize) {
        let connection = &self.connections[connection];
        let (index, agent) = (connection.agent, &mut self.agents[connection.agent]);
        if agent.is_alive && !self.launcher.is_alive {
            (agent.has_link_ended, agent.is_link_readable) = (true, true);
            self.run_agent(index);
        }
    }

    /// A cut of one direction has ended, if it was the last one of this host.
    pub(super) fn heal(&mut self, host: usize, way: Way) {
        if 0 < self.hosts[host].cuts[way.index()] {
            return;
        }
        let of_host = |index: &usize| self.connections[*index].host == host;
        for connection in (0..self.connections.len()).filter(of_host).collect::<Vec<_>>() {
            let pipe = &mut self.connections[connection].pipes[way.index()];
            let stalled = std::mem::take(&mut pipe.stalled);
            let later = self.random.between(0, RETRANSMISSION_MAX);
            for _ in 0..stalled {
                self.schedule_arrival(connection, way, later);
            }
        }
    }
}

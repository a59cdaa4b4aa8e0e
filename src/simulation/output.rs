//! What simulated workers print: the agent forwards as much as its real window allows, and the
//! launcher confirms what it has consumed.

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::incidents::Check;
use super::mistakes::Mistake;
use super::network::{Parcel, Way};
use super::processes::{ConsumedOutput, UnreadOutput};
use super::world::{Happening, Simulation};
use crate::agent::AgentEvent;
use crate::wire::{self, FromAgent, Stream, ToAgent};

/// Bytes of output that may be on their way over a link.
pub(super) const WINDOW_BYTES: u64 = 16 * 1024;
/// Most bytes that a worker prints at once, and most times that it prints.
const PRINT_MAX: usize = 12 * 1024;
const PRINTS_MAX: usize = 3;
/// Longest time that the launcher needs for output; a slower disk loses it.
const CONSUME_TIME_MAX: Micros = SECOND;

impl Simulation {
    /// Plans what a worker prints.
    pub(super) fn plan_output(&mut self, worker: usize) {
        for _ in 0..self.random.below(PRINTS_MAX + 1) {
            let at = self.random.between(0, self.scenario.run_time);
            let bytes = 1 + self.random.below(PRINT_MAX);
            self.after(at, Happening::WorkerPrints { worker, bytes });
        }
    }

    /// A worker prints.
    pub(super) fn print(&mut self, worker: usize, bytes: usize) {
        let printer = &self.workers[worker];
        if !printer.is_alive || printer.is_stopped {
            return;
        }
        let (agent, rank, epoch) = (printer.agent, printer.rank, printer.epoch);
        self.agents[agent].unread.push_back(UnreadOutput { worker, rank, epoch, bytes });
        self.run_agent(agent);
    }

    /// Whether the agent has not read all output of a worker.
    pub(super) fn has_unread(&self, worker: usize) -> bool {
        let agent = &self.agents[self.workers[worker].agent];
        agent.unread.iter().any(|unread| unread.worker == worker)
    }

    /// The agent forwards output as far as its window is open; without a launcher it discards all.
    pub(super) fn forward_output(&mut self, index: usize) {
        let now = self.instant(self.now());
        let is_unlimited = self.mistake == Some(Mistake::AgentIgnoresWindow);
        loop {
            let agent = &mut self.agents[index];
            let Some(unread) = agent.unread.front_mut() else { return };
            if !agent.is_link_open {
                agent.unread.clear();
                return;
            }
            let printed = unread.bytes as u64;
            let open =
                if is_unlimited { Some(printed) } else { agent.credit.reserve(now, printed) };
            let Some(bytes) = open else { return };
            unread.bytes -= bytes as usize;
            let (rank, epoch, is_read) = (unread.rank, unread.epoch, unread.bytes == 0);
            if is_read {
                agent.unread.pop_front();
            }
            let bytes = vec![b'.'; bytes as usize];
            let output = FromAgent::Output { rank, stream: Stream::Stdout, bytes };
            let connection = agent.connection;
            let frame = wire::encode(epoch, &output);
            self.send(connection, Way::FromNode, Parcel::Bytes(frame));
            self.check_window(connection);
        }
    }

    /// Counts output as consumed by the launcher; the answer if that many bytes were never sent.
    pub(super) fn acknowledge_output(&mut self, index: usize, bytes: u64) -> Option<AgentEvent> {
        let now = self.instant(self.now());
        let was_sent = self.mistake == Some(Mistake::AgentIgnoresWindow)
            || self.agents[index].credit.acknowledge(now, bytes);
        let why = "acknowledged more output than was sent";
        (!was_sent).then(|| AgentEvent::ProtocolError(why.to_owned()))
    }

    /// At most a window of output is on its way.
    fn check_window(&mut self, connection: usize) {
        let sent = &self.connections[connection].pipes[Way::FromNode.index()].sent;
        let large = sent.iter().map(|parcel| match parcel {
            Parcel::Bytes(bytes) => bytes.len() as u64,
            Parcel::End(_) => 0,
        });
        let bytes: u64 = large.sum();
        // The other messages are small.
        if 2 * WINDOW_BYTES + 128 * self.frames_max() as u64 / 2 < bytes {
            self.truth.fail(Check::BoundedQueues, || format!("{bytes} bytes are on their way"));
        }
    }

    /// The launcher's reporter has received output, and consumes it after a while.
    pub(super) fn consume_soon(&mut self, connection: usize, bytes: usize) {
        let slow = self.launcher.slow_until.saturating_sub(self.now()).min(CONSUME_TIME_MAX);
        let time = slow + self.random.between(10, 20 * MS);
        self.after(time, Happening::OutputIsConsumed { connection, bytes: bytes as u64 });
    }

    /// Output is consumed.
    pub(super) fn queue_consumed(&mut self, connection: usize, bytes: u64) {
        if self.connections[connection].launcher == self.launcher.number {
            self.launcher.consumed.push_back(ConsumedOutput { connection, bytes });
            self.run_launcher();
        }
    }

    /// The launcher confirms it to the agent that has sent it, unless that was replaced.
    pub(super) fn confirm_output(&mut self, output: &ConsumedOutput) {
        let connection = &self.connections[output.connection];
        let (node, link) = (connection.node, connection.link);
        if self.launcher.table.is_current(node, link) {
            self.send_to(node, &ToAgent::Consumed(output.bytes));
        }
    }
}

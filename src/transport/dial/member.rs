//! A node that node 0 has accepted: its agent's link runs over the connection from now on.

use std::net::SocketAddr;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::control_messages::{Control, JobOver};
use super::relay::{LinkFilter, LocalLink, RelayEvent, relay};
use super::secure_channel::{SecureReader, SecureWriter};
use crate::base::{Epoch, NodeRank, WorkerExit};
use crate::os::tasks::Tasks;
use crate::transport::{LinkReader, LinkWriter};

/// Events that wait for the member's loop.
const EVENTS_MAX: usize = 256;

/// An event that a member receives from node 0. After the last event node 0 is gone.
#[derive(Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// The agent has ended its side of the link.
    AgentEnded,
    /// An epoch begins; the number counts the restarts so far that do not count against
    /// `--max_restarts`.
    EpochStarted(Epoch, u32),
    /// The node must join again, with another agent.
    Rejoin,
    /// Node 0 was requested to exit, and the job continues with another node 0.
    Leaving,
    /// The job is over.
    JobEnded(JobOver),
}

/// A connection to node 0 that has no agent yet.
pub struct MemberConnection {
    /// Number of this node.
    pub node: NodeRank,
    writer: SecureWriter,
    reader: SecureReader,
}

/// A connection to node 0 over which an agent's link runs. It ends when this is dropped.
pub struct AttachedMember {
    control_sender: mpsc::UnboundedSender<Control>,
    events: mpsc::Receiver<MemberEvent>,
    task: AbortHandle,
}

impl MemberConnection {
    pub(super) fn new(node: NodeRank, writer: SecureWriter, reader: SecureReader) -> Self {
        Self { node, writer, reader }
    }

    /// Addresses of node 0 and of this node.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.reader.ends().ok()
    }

    /// Connects the agent at the other end of this link. One of `tasks` relays its bytes; if there is a
    /// filter, the agent receives what that makes of them.
    pub fn attach(
        self,
        reader: LinkReader,
        writer: LinkWriter,
        filter: Option<Box<dyn LinkFilter>>,
        tasks: &mut Tasks,
    ) -> AttachedMember {
        // Holds the signals that this process received, and the exit of its agent.
        let (words, controls) = mpsc::unbounded_channel();
        let (sender, news) = mpsc::channel(EVENTS_MAX);
        let connection = (self.writer, self.reader);
        let on_event = move |event| {
            let event = match event {
                RelayEvent::LocalEnded => MemberEvent::AgentEnded,
                RelayEvent::Control(Control::EpochStarted(epoch, free_restarts)) => {
                    MemberEvent::EpochStarted(epoch, free_restarts)
                }
                RelayEvent::Control(Control::Leaving) => MemberEvent::Leaving,
                RelayEvent::Control(Control::Rejoin) => MemberEvent::Rejoin,
                RelayEvent::Control(Control::JobEnded(over)) => MemberEvent::JobEnded(over),
                // Node 0 sends no other messages after the join.
                RelayEvent::Control(_) => return,
            };
            // Node 0 sends one event for each epoch, and one at the end: it is full only if node 0 sends
            // what it must not.
            let _ = sender.try_send(event);
        };
        let local = LocalLink { reader, writer, filter };
        let task = tasks.spawn(relay(local, connection, controls, on_event));
        AttachedMember { control_sender: words, events: news, task }
    }
}

impl AttachedMember {
    /// The next event; `None` when node 0 is gone.
    pub async fn next(&mut self) -> Option<MemberEvent> {
        self.events.recv().await
    }

    /// Reports a signal that this process received and that is meant for the job.
    pub fn forward_signal(&self, signal: i32) {
        let _ = self.control_sender.send(Control::Signal(signal));
    }

    /// Reports the exit of this node's agent.
    pub fn report_agent_exit(&self, exit: Option<WorkerExit>) {
        let _ = self.control_sender.send(Control::AgentEnded(exit));
    }
}

impl Drop for AttachedMember {
    fn drop(&mut self) {
        self.task.abort();
    }
}

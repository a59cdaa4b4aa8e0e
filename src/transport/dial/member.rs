//! A node that node 0 has accepted: its agent's link runs over the connection from now on.

use std::net::SocketAddr;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::line::{SecureReader, SecureWriter};
use super::pump::{Local, Pumped, pump};
use super::words::{Control, JobOver};
use crate::base::{Epoch, WorkerExit};
use crate::os::tasks::Tasks;
use crate::transport::{LinkReader, LinkWriter};

/// An event that a member receives from node 0. After the last event node 0 is gone.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// The agent has ended its side of the link.
    AgentEnded,
    /// An epoch begins; the number counts the earlier epochs that followed an epoch that did not
    /// fail.
    Begun(Epoch, u32),
    /// The node must join again, with another agent.
    Again,
    /// Node 0 was requested to exit, and the job continues with another node 0.
    Leaving,
    /// The job is over.
    Over(JobOver),
}

/// A connection to node 0 that has no agent yet.
pub struct MemberConnection {
    mouth: SecureWriter,
    ear: SecureReader,
}

/// A connection to node 0 over which an agent's link runs. It ends when this is dropped.
pub struct Attached {
    words: mpsc::UnboundedSender<Control>,
    news: mpsc::UnboundedReceiver<News>,
    task: AbortHandle,
}

impl MemberConnection {
    pub(super) fn new(writer: SecureWriter, reader: SecureReader) -> Self {
        Self { mouth: writer, ear: reader }
    }

    /// Address of node 0.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.ear.peer().ok()
    }

    /// Connects the agent at the other end of this link. One of `tasks` relays its bytes.
    pub fn attach(self, (reader, writer): (LinkReader, LinkWriter), tasks: &mut Tasks) -> Attached {
        let (words, controls) = mpsc::unbounded_channel();
        let (sender, news) = mpsc::unbounded_channel();
        let connection = (self.mouth, self.ear);
        let on_event = move |event| {
            let _ = match event {
                Pumped::LocalEnded => sender.send(News::AgentEnded),
                Pumped::Word(Control::Begun(epoch, uncharged)) => {
                    sender.send(News::Begun(epoch, uncharged))
                }
                Pumped::Word(Control::Leaving) => sender.send(News::Leaving),
                Pumped::Word(Control::Again) => sender.send(News::Again),
                Pumped::Word(Control::Over(over)) => sender.send(News::Over(over)),
                // Node 0 sends no other messages after the join.
                Pumped::Word(_) => Ok(()),
            };
        };
        let local = Local { reader, writer };
        let task = tasks.spawn(pump(local, connection, controls, on_event));
        Attached { words, news, task }
    }
}

impl Attached {
    /// The next event; `None` when node 0 is gone.
    pub async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// Reports a signal that this process received and that is meant for the job.
    pub fn signal(&self, signal: i32) {
        let _ = self.words.send(Control::Signal(signal));
    }

    /// Reports the exit of this node's agent.
    pub fn agent_ended(&self, exit: Option<WorkerExit>) {
        let _ = self.words.send(Control::AgentEnded(exit));
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.task.abort();
    }
}

//! The commands of a process manager: one for all nodes, and one for each node that is replaced.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::base::NodeRank;
use crate::transport::manager::{ManagerOptions, ManagerProcess, Ticket};
use crate::transport::{Fault, FaultKind};

/// Why a command has ended; `None` while it runs.
pub(in crate::launch) type CommandFault = watch::Receiver<Option<Fault>>;

/// Starts agents through a process manager.
pub(in crate::launch) struct ManagedAgents {
    requests: mpsc::UnboundedSender<(Vec<NodeRank>, watch::Sender<Option<Fault>>)>,
    /// The command for all nodes.
    first: CommandFault,
}

impl ManagedAgents {
    /// Starts the command for all nodes of a ticket. The returned task runs the commands: it must be
    /// awaited beside the job, and ends them when it is dropped.
    pub(in crate::launch) fn start(
        options: ManagerOptions,
        ticket: Ticket,
    ) -> (Arc<Self>, impl Future<Output = ()>) {
        // Holds one request for each attempt to start a node, which the dispatcher makes.
        let (requests, queue) = mpsc::unbounded_channel();
        let (ended, first) = watch::channel(None);
        let all = ticket.hosts.iter().map(|host| host.node).collect();
        let _ = requests.send((all, ended));
        (Arc::new(Self { requests, first }), run(options, ticket, queue))
    }

    /// The command that starts a node: the first one, or a new one for this node alone.
    pub(in crate::launch) fn command_of(&self, node: NodeRank, is_again: bool) -> CommandFault {
        if !is_again {
            return self.first.clone();
        }
        let (ended, receiver) = watch::channel(None);
        let _ = self.requests.send((vec![node], ended));
        receiver
    }
}

/// Waits until a command has ended; never returns if the launcher ends it.
pub(in crate::launch) async fn fault_of(mut command: CommandFault) -> Fault {
    match command.wait_for(Option::is_some).await.map(|fault| fault.clone()) {
        Ok(Some(fault)) => fault,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

async fn run(
    options: ManagerOptions,
    ticket: Ticket,
    mut queue: mpsc::UnboundedReceiver<(Vec<NodeRank>, watch::Sender<Option<Fault>>)>,
) {
    let mut commands = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some((nodes, ended)) = queue.recv() => {
                let (options, mut ticket) = (options.clone(), ticket.clone());
                ticket.hosts.retain(|host| nodes.contains(&host.node));
                commands.spawn(run_command(options, ticket, ended));
            }
            Some(_) = commands.join_next(), if !commands.is_empty() => {}
            else => std::future::pending::<()>().await,
        }
    }
}

async fn run_command(options: ManagerOptions, ticket: Ticket, ended: watch::Sender<Option<Fault>>) {
    let fault = match ManagerProcess::start(&options, &ticket) {
        Err(fault) => fault,
        Ok(mut process) => Fault::new(FaultKind::Manager, process.wait().await),
    };
    let _ = ended.send(Some(fault));
}

//! The commands of a process manager: one for all nodes, and one for each node that is replaced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use crate::base::NodeRank;
use crate::transport::Fault;
use crate::transport::manager::{
    ManagerEvent, ManagerOptions, ManagerProcess, ManagerProgress, Ticket,
};

/// State of a command of a process manager.
#[derive(Default)]
pub(in crate::launch) enum CommandState {
    /// It was requested.
    #[default]
    Requested,
    /// It runs.
    Running {
        /// What explains why an agent has not connected.
        progress: ManagerProgress,
        /// Nodes whose processes have ended.
        ended: BTreeMap<NodeRank, Fault>,
    },
    /// It could not be started, or has ended.
    Ended {
        /// The reason.
        fault: Fault,
        /// Nodes with a reason of their own.
        of_nodes: BTreeMap<NodeRank, Fault>,
    },
}

impl CommandState {
    /// Why the process of a node has ended, if it has and others run.
    fn ended(&self, node: NodeRank) -> Option<&Fault> {
        match self {
            Self::Running { ended, .. } => ended.get(&node),
            Self::Requested | Self::Ended { .. } => None,
        }
    }
}

/// A command, for the tasks that wait for its nodes.
#[derive(Clone)]
pub(in crate::launch) struct ManagedCommand {
    state: watch::Receiver<CommandState>,
    /// Tells the command of one node that nothing waits for it any longer.
    given_up: Arc<Notify>,
}

impl ManagedCommand {
    /// Ends the command of one node, which did not start its agent in time.
    pub(in crate::launch) fn give_up(&self) {
        self.given_up.notify_one();
    }
}

/// Why a command has ended before a node had an agent.
pub(in crate::launch) struct EndedCommand {
    /// The reason.
    pub(in crate::launch) fault: Fault,
    /// Whether the reason is this node, as far as the manager says.
    pub(in crate::launch) is_of_node: bool,
}

/// A command to be started.
struct CommandRequest {
    nodes: Vec<NodeRank>,
    state: watch::Sender<CommandState>,
    given_up: Arc<Notify>,
}

/// Starts agents through a process manager.
pub(in crate::launch) struct ManagedAgents {
    requests: mpsc::UnboundedSender<CommandRequest>,
    /// The command for all nodes.
    first: ManagedCommand,
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
        let all = ticket.hosts.iter().map(|host| host.node).collect();
        let first = request(&requests, all);
        (Arc::new(Self { requests, first }), run(options, ticket, queue))
    }

    /// The command that starts a node: the first one, or a new one for this node alone.
    pub(in crate::launch) fn command_of(&self, node: NodeRank, is_again: bool) -> ManagedCommand {
        if !is_again {
            return self.first.clone();
        }
        request(&self.requests, vec![node])
    }
}

/// Requests a command for these nodes.
fn request(
    requests: &mpsc::UnboundedSender<CommandRequest>,
    nodes: Vec<NodeRank>,
) -> ManagedCommand {
    let (sender, state) = watch::channel(CommandState::default());
    let given_up = Arc::new(Notify::new());
    let _ = requests.send(CommandRequest { nodes, state: sender, given_up: Arc::clone(&given_up) });
    ManagedCommand { state, given_up }
}

/// Waits until a command has ended, and returns why a node has no agent; never returns if the launcher ends it.
pub(in crate::launch) async fn end_of(mut command: ManagedCommand, node: NodeRank) -> EndedCommand {
    let has_ended = |state: &CommandState| matches!(state, CommandState::Ended { .. });
    if let Ok(state) = command.state.wait_for(has_ended).await
        && let CommandState::Ended { fault, of_nodes } = &*state
    {
        let own = of_nodes.get(&node);
        return EndedCommand { fault: own.unwrap_or(fault).clone(), is_of_node: own.is_some() };
    }
    std::future::pending().await
}

/// Waits until the process of a node has ended while others of its command run; never returns if the manager does
/// not say so.
pub(in crate::launch) async fn fault_of_node(mut command: ManagedCommand, node: NodeRank) -> Fault {
    let has_ended = |state: &CommandState| state.ended(node).is_some();
    if let Ok(state) = command.state.wait_for(has_ended).await
        && let Some(fault) = state.ended(node)
    {
        return fault.clone();
    }
    std::future::pending().await
}

/// The fault of a node of a command that runs and did not start the agent within this time.
pub(in crate::launch) fn late_fault(
    command: &ManagedCommand,
    node: NodeRank,
    limit: Duration,
) -> Option<Fault> {
    match &*command.state.borrow() {
        CommandState::Running { progress, .. } => Some(progress.late_fault(node, limit)),
        CommandState::Requested | CommandState::Ended { .. } => None,
    }
}

async fn run(
    options: ManagerOptions,
    ticket: Ticket,
    mut queue: mpsc::UnboundedReceiver<CommandRequest>,
) {
    let mut commands = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(CommandRequest { nodes, state, given_up }) = queue.recv() => {
                let (options, mut ticket) = (options.clone(), ticket.clone());
                ticket.hosts.retain(|host| nodes.contains(&host.node));
                commands.spawn(async move {
                    tokio::select! {
                        () = run_command(options, ticket, state) => {}
                        () = given_up.notified() => {}
                    }
                });
            }
            Some(_) = commands.join_next(), if !commands.is_empty() => {}
            else => std::future::pending::<()>().await,
        }
    }
}

async fn run_command(options: ManagerOptions, ticket: Ticket, state: watch::Sender<CommandState>) {
    let mut process = match ManagerProcess::start(&options, &ticket) {
        Ok(process) => process,
        Err(fault) => {
            state.send_replace(CommandState::Ended { fault, of_nodes: BTreeMap::new() });
            return;
        }
    };
    let progress = process.progress();
    state.send_replace(CommandState::Running { progress, ended: BTreeMap::new() });
    loop {
        match process.next().await {
            ManagerEvent::NodesEnded(faults) => state.send_modify(|state| {
                if let CommandState::Running { ended, .. } = state {
                    ended.extend(faults);
                }
            }),
            ManagerEvent::Ended { fault, of_nodes } => {
                let of_nodes = of_nodes.into_iter().collect();
                state.send_replace(CommandState::Ended { fault, of_nodes });
                return;
            }
        }
    }
}

//! The simulated processes and machines, as data. What they do is in the other files.

use std::collections::VecDeque;

use super::clock::Micros;
use crate::agent::{AgentEvent, AgentState, Credit, FromShim, PreflightRequest, ToShim};
use crate::base::{Epoch, NodeRank, Rank, Status, WorkerExit};
use crate::job::JobState;
use crate::launch::node::table::NodeTable;
use crate::launch::user::pause::Pause;
use crate::wire::{ClockOffset, Decoder, FromAgent, Stream};

/// A machine.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a process")]
pub(super) struct SimulatedHost {
    pub(super) node: NodeRank,
    pub(super) has_power: bool,
    /// Number of cuts of each direction that have not healed.
    pub(super) cuts: [u32; 2],
    /// Its clock is ahead of virtual time by this.
    pub(super) clock_ahead: Micros,
    /// Until when its disk is slow.
    pub(super) slow_until: Micros,
    /// When it can first be reached.
    pub(super) reachable_from: Micros,
    /// The agent that took the lock of this node last.
    pub(super) lock: Option<usize>,
    /// Number of suspensions of the whole machine.
    pub(super) suspensions: u32,
    /// Whether the system that starts the nodes has taken it away.
    pub(super) is_gone: bool,
    /// The first epoch in which it has not taken part, as its own process knows.
    pub(super) next_epoch: Epoch,
    /// Number of restarts without a failure, as its own process knows.
    pub(super) free_restarts: u32,
    pub(super) cannot_execute: bool,
    pub(super) refuses: bool,
    /// Whether its workers fail soon after they were started.
    pub(super) keeps_failing: bool,
}

/// An agent with its shim.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a process")]
pub(super) struct SimulatedAgent {
    pub(super) host: usize,
    pub(super) connection: usize,
    pub(super) state: AgentState,
    pub(super) decoder: Decoder,
    pub(super) is_link_open: bool,
    pub(super) is_link_readable: bool,
    pub(super) has_link_ended: bool,
    pub(super) packets: VecDeque<FromShim>,
    /// Whether the exit of the shim was handled.
    pub(super) knows_shim_exit: bool,
    pub(super) results: VecDeque<AgentEvent>,
    /// Output that was not forwarded.
    pub(super) unread: VecDeque<UnreadOutput>,
    pub(super) credit: Credit,
    pub(super) wake_at: Micros,
    /// When the event that wakes it is on the agenda.
    pub(super) scheduled_wake: Micros,
    pub(super) suspensions: u32,
    pub(super) is_alive: bool,
    /// Its exit status, while it waits for the exit of its shim.
    pub(super) finishing: Option<Status>,
    /// The checks that wait for the lock of the node, and until when.
    pub(super) waiting: Option<(Box<PreflightRequest>, Micros)>,
    pub(super) has_lock: bool,
    pub(super) shim: SimulatedShim,
    /// Whether it is a child of a process of remuda that has connected to the launcher, and that runs.
    pub(super) has_member: bool,
    /// The epoch that it has begun.
    pub(super) epoch: Epoch,
    /// Epochs whose end it has reported.
    pub(super) idle_epochs: Vec<Epoch>,
}

/// Output of a worker in its pipe.
pub(super) struct UnreadOutput {
    pub(super) worker: usize,
    pub(super) rank: Rank,
    pub(super) epoch: Epoch,
    pub(super) bytes: usize,
}

/// Output that the launcher has shown and stored.
pub(super) struct ConsumedOutput {
    pub(super) connection: usize,
    pub(super) bytes: u64,
}

/// A shim: it starts workers and waits for them.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a process")]
#[derive(Default)]
pub(super) struct SimulatedShim {
    pub(super) is_alive: bool,
    pub(super) suspensions: u32,
    pub(super) requests: VecDeque<ShimRequest>,
    /// Children that have exited and were not reaped.
    pub(super) exits: VecDeque<usize>,
    pub(super) workers: Vec<usize>,
    pub(super) has_agent: bool,
    pub(super) has_lock: bool,
    pub(super) is_empty_reported: bool,
    /// Until when it waits for the exit of everything that it has killed.
    pub(super) killing_until: Option<Micros>,
    /// Workers whose leftovers were reported.
    pub(super) reported: Vec<usize>,
}

/// A request to a shim.
#[derive(Debug)]
pub(super) enum ShimRequest {
    Message(ToShim),
    /// Start workers with these ranks.
    Spawn(Epoch, Vec<Rank>),
}

/// A worker, and the process that it may leave behind.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a process")]
pub(super) struct SimulatedWorker {
    pub(super) agent: usize,
    pub(super) host: usize,
    /// Index among the workers of its start request.
    pub(super) index: u32,
    pub(super) rank: Rank,
    pub(super) epoch: Epoch,
    pub(super) is_alive: bool,
    /// When the shim noticed its exit.
    pub(super) reaped_at: Option<Micros>,
    /// Whether the agent reads its output, and the streams that ended before.
    pub(super) is_attached: bool,
    pub(super) early_ends: Vec<Stream>,
    pub(super) is_stopped: bool,
    /// Whether SIGKILL ends it as soon as the kernel returns.
    pub(super) is_kill_pending: bool,
    /// An exit that waits for SIGCONT.
    pub(super) pending_exit: Option<(WorkerExit, EndReason)>,
    pub(super) signals_sent: Vec<i32>,
    pub(super) exit: Option<(WorkerExit, EndReason)>,
    pub(super) leftover: LeftoverState,
    pub(super) closed_streams: Vec<Stream>,
}

/// Why a worker exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// Its work is done.
    Finished,
    /// A fault of this run.
    Fault,
    /// Another worker of its group failed.
    Witness,
    /// Remuda stopped it.
    Stopped,
    /// The process that holds it has exited.
    ParentGone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftoverState {
    None,
    Running,
    Exited,
}

/// The launcher: the job, its nodes, and what wakes it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a process")]
pub(super) struct SimulatedLauncher {
    pub(super) job: JobState,
    /// 0, or one more than that of the launcher that it replaces.
    pub(super) number: u32,
    pub(super) will_be_replaced: bool,
    /// Whether it has started workers.
    pub(super) has_started: bool,
    pub(super) is_alive: bool,
    pub(super) suspensions: u32,
    pub(super) table: NodeTable,
    /// The links to the nodes.
    pub(super) nodes: Vec<LauncherNode>,
    pub(super) events: VecDeque<LauncherEvent>,
    pub(super) consumed: VecDeque<ConsumedOutput>,
    pub(super) signals: VecDeque<i32>,
    /// Connections with something to read.
    pub(super) readable: VecDeque<usize>,
    pub(super) timer_at: Option<Micros>,
    pub(super) timeout_at: Option<Micros>,
    /// While what lost local nodes left is being killed.
    pub(super) reaping_until: Option<Micros>,
    pub(super) scheduled_wake: Micros,
    pub(super) pause: Pause,
    /// How long the suspension by the user lasts that was begun last, and all before it.
    pub(super) pause_time: Micros,
    pub(super) pause_total: Micros,
    /// When it suspended itself.
    pub(super) stopped_at: Option<Micros>,
    pub(super) slow_until: Micros,
    /// Whether it has a verdict and only waits for the ends of its links.
    pub(super) is_finishing: bool,
    /// Workers whose reports were requested, until they are found.
    pub(super) evidence_of: Vec<Rank>,
    pub(super) has_evidence: bool,
}

/// The link to a node.
pub(super) struct LauncherNode {
    pub(super) epoch: Epoch,
    pub(super) connection: Option<usize>,
    pub(super) clock: ClockOffset,
    pub(super) hello_sent_at: Micros,
    /// Whether it waits for a connection of the node.
    pub(super) is_awaited: bool,
    /// Messages for a connection that does not exist yet.
    pub(super) queue: Vec<Vec<u8>>,
}

/// An event of a link, in the launcher's queue.
pub(super) struct LauncherEvent {
    pub(super) node: NodeRank,
    pub(super) link: u32,
    pub(super) news: LinkNews,
}

pub(super) enum LinkNews {
    Connected,
    Unreachable { is_late: bool },
    Message(FromAgent),
    Closed(Option<WorkerExit>),
    InvalidData(String),
    Signal(i32),
    EarlierEpochs(Epoch, u32),
}

impl SimulatedHost {
    pub(super) fn new(node: NodeRank, clock_ahead: Micros) -> Self {
        Self {
            node,
            has_power: true,
            cuts: [0; 2],
            clock_ahead,
            slow_until: 0,
            reachable_from: 0,
            lock: None,
            suspensions: 0,
            is_gone: false,
            next_epoch: Epoch(0),
            free_restarts: 0,
            cannot_execute: false,
            refuses: false,
            keeps_failing: false,
        }
    }

    /// Whether a new connection to the host, or from it, succeeds now.
    pub(super) fn is_reachable(&self, now: Micros) -> bool {
        self.has_power
            && !self.is_gone
            && self.suspensions == 0
            && self.cuts == [0; 2]
            && self.reachable_from <= now
    }
}

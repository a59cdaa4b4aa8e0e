//! Input and output of the agent's state machine: events that happen to an agent, effects to
//! perform. Plain values: descriptors and processes stay with the event loop.

use std::time::{Duration, Instant};

use super::group_watch::GroupCheck;
use crate::agent::shim::{FromShim, ToShim};
use crate::base::{Epoch, JobId, NodeRank, Rank, WorkerExit};
use crate::runtime::contract::ToWorker;
use crate::wire::{
    Examination, Examine, FromAgent, Leftover, NodeRoster, Prepare, PreparedNode, ProbeListener,
    ProbeResult, Problem, Start, Stream, ToAgent, WorkerStartStep,
};

/// An event that may happen to an agent.
#[derive(Debug)]
pub enum AgentEvent {
    /// A message of the launcher.
    Message {
        /// Epoch of the message.
        epoch: Epoch,
        /// What the launcher requests or reports.
        message: ToAgent,
    },
    /// The link to the launcher has ended.
    LinkEnded,
    /// The launcher broke the protocol: why.
    ProtocolError(String),
    /// A message of the shim.
    ShimMessage {
        /// What happened to the workers, or an answer.
        message: FromShim,
        /// Number of descriptors that came with it.
        descriptors: usize,
    },
    /// The shim has exited.
    ShimExited,
    /// Answer to [`AgentEffect::InspectShim`].
    ShimInspected(ShimCheck, ShimStatus),
    /// Answer to [`AgentEffect::ReapOrphans`]: processes are left, and their exit can be awaited.
    OrphansLeft,
    /// Answer to [`AgentEffect::ReapOrphans`]: no process is left except these.
    OrphansReaped {
        /// Time on the agent's clock.
        at_us: u64,
        /// Processes that could not be killed.
        unkillable: Vec<Leftover>,
    },
    /// An output stream of a worker has ended.
    StreamEnded {
        /// Index of the worker in the start request.
        worker: usize,
        /// Stdout or stderr.
        stream: Stream,
        /// Whether another process still holds the other end open.
        is_held_open: bool,
    },
    /// Answer to [`AgentEffect::RunPreflight`].
    PreflightDone {
        /// The request of the launcher.
        prepare: Box<Prepare>,
        /// What the node found, or all problems.
        result: Result<PreparedNode, Vec<Problem>>,
    },
    /// Answer to [`AgentEffect::StartWorkers`] if the shim could not be asked.
    SpawnFailed {
        /// The step that failed.
        step: WorkerStartStep,
        /// Error number of the kernel.
        errno: i32,
    },
    /// Answer to [`AgentEffect::Examine`].
    Examined(Box<Examination>),
    /// Answer to [`AgentEffect::Probe`].
    Probed(Vec<ProbeResult>),
    /// Answer to [`AgentEffect::FindSuspended`].
    SuspendedFound(Vec<Rank>),
    /// Answer to [`AgentEffect::CheckGroup`].
    GroupChecked {
        /// Epoch of the request.
        epoch: Epoch,
        /// What was found.
        check: GroupCheck,
    },
    /// The instant requested with [`AgentEffect::Wake`] was reached.
    Timer,
}

/// What the event loop must do after an event, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEffect {
    /// Send a message to the launcher.
    Send {
        /// Epoch of the message.
        epoch: Epoch,
        /// What the agent reports or answers.
        message: FromAgent,
    },
    /// Send [`FromAgent::Hello`] with the facts of this process.
    SendHello(Epoch),
    /// Send [`FromAgent::Clock`] with the time at which it is sent.
    SendClock {
        /// Epoch of the message.
        epoch: Epoch,
        /// Time of the request on the launcher's clock.
        sent_us: u64,
    },
    /// Release what the previous epoch used; later messages of the launcher belong to this epoch.
    BeginEpoch(Epoch),
    /// Stop reading the link, and discard the output of workers. It is still read, so that no
    /// worker blocks or fails because of it.
    CloseLink,
    /// Check on another thread whether the job can start on this node.
    RunPreflight(Box<PreflightRequest>),
    /// Fork the workers, with the results of the checks.
    StartWorkers(Box<StartRequest>),
    /// Connect a worker that was forked: its output, its socket, its standard input. The
    /// descriptors came with the message about the fork.
    AttachWorker {
        /// Index of the worker.
        worker: usize,
        /// Epoch of its output.
        epoch: Epoch,
    },
    /// Close the standard input and the socket of a worker that has exited.
    DetachWorker(usize),
    /// Send the error file that a failed worker wrote, and then its exit.
    ReportExit(ExitReport),
    /// Read the rest of a worker's output without waiting for its end.
    CancelStreams(usize),
    /// Send a message to every worker that is alive. Operations that need a worker that has exited
    /// then fail at once instead of at their deadline.
    Broadcast(ToWorker),
    /// Pass standard input on to a worker; empty: end of input.
    WriteStdin {
        /// Rank of the worker.
        rank: Rank,
        /// The input.
        bytes: Vec<u8>,
    },
    /// Allow this many bytes of output in transit.
    OpenWindow(u64),
    /// Count output as consumed by the launcher. If that many bytes were never sent, the answer is
    /// [`AgentEvent::ProtocolError`].
    AcknowledgeOutput(u64),
    /// Send a message to the shim.
    SendToShim(ToShim),
    /// Signal the shim itself.
    SignalShim(i32),
    /// Read whether the kernel lists the shim as stopped.
    InspectShim(ShimCheck),
    /// Kill and reap once what the shim left when it exited.
    ReapOrphans,
    /// Find out which of these workers are stopped by a signal or a debugger.
    FindSuspended(Vec<(Rank, u32)>),
    /// Find out on another thread whether these processes form a group.
    CheckGroup {
        /// Epoch of the processes.
        epoch: Epoch,
        /// Port of rank 0.
        port: u16,
        /// Pids of the workers.
        pids: Vec<u32>,
        /// Time since the workers were started.
        since_start: Duration,
    },
    /// Examine this node on another thread.
    Examine(Box<Examine>),
    /// Connect to these test listeners.
    Probe(Vec<ProbeListener>),
    /// Print a line to standard error.
    Print(String),
    /// Send [`AgentEvent::Timer`] at this instant; replaces an earlier request.
    Wake(Instant),
}

/// What the preflight checks need.
#[derive(Clone, Debug, PartialEq)]
pub struct PreflightRequest {
    /// Name of the job.
    pub job: JobId,
    /// Rank of this node.
    pub node: NodeRank,
    /// The epoch in which the workers will start.
    pub epoch: Epoch,
    /// The request of the launcher.
    pub prepare: Prepare,
}

/// What the start of the workers needs, besides the results of the preflight checks.
#[derive(Clone, Debug, PartialEq)]
pub struct StartRequest {
    /// Name of the job.
    pub job: JobId,
    /// The epoch of the workers.
    pub epoch: Epoch,
    /// The request for which the checks have passed.
    pub prepare: Box<Prepare>,
    /// The workers.
    pub start: Start,
    /// All nodes of the epoch.
    pub roster: NodeRoster,
}

/// The exit of a worker that is reported to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitReport {
    /// Epoch of the worker.
    pub epoch: Epoch,
    /// Index of the worker.
    pub worker: usize,
    /// Rank of the worker.
    pub rank: Rank,
    /// Pid of the worker; `None` if it was never forked.
    pub pid: Option<u32>,
    /// How it exited.
    pub exit: WorkerExit,
    /// Time of the exit on the agent's clock.
    pub at_us: u64,
    /// Signals that it was sent before.
    pub signals_sent: Vec<i32>,
}

/// Why the shim is inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimCheck {
    /// At a heartbeat: whether it can answer.
    Heartbeat {
        /// Time for which the agent itself did not run.
        late: Duration,
    },
    /// It was asked to kill everything.
    Kill,
}

/// State of the shim according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimStatus {
    /// It is running, or has exited.
    Running,
    /// A signal has stopped it.
    Stopped,
    /// A debugger has stopped it, perhaps for a moment.
    Traced,
}

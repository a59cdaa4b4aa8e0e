//! Messages between launcher and agent. These types exist for the wire only: they are append-only,
//! and golden bytes pin their encoding.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::examination::{Examination, Examine, ProbeListener, ProbeResult};
use super::prepare::{Prepare, PreparedNode, Problem};
use crate::base::{Epoch, LocalRank, NodeRank, Note, Rank, WorkerExit};

/// Version of everything in this file and in the types of its messages.
pub const VERSION: u32 = 15;

/// Maximum number of bytes of an error file that are sent; a longer file is truncated.
pub const ERROR_FILE_BYTES_MAX: usize = 64 * 1024;
/// Largest stack of a stopped worker that an agent sends; the rest, the outer frames, is cut off.
pub const STACK_BYTES_MAX: usize = 8 * 1024;

/// First message of the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherHello {
    /// [`VERSION`] of the launcher.
    pub version: u32,
    /// Build of the launcher, for the error message when versions differ.
    pub build: String,
    /// Name of the job.
    pub job: String,
    /// Rank of the agent's node.
    pub node: NodeRank,
}

/// First message of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// Build of the agent.
    pub build: String,
    /// Pid of the agent.
    pub pid: u32,
    /// Clock of the agent, in microseconds since the node started.
    pub clock_us: u64,
}

/// Message from the launcher to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Identity of the launcher; the first message.
    Hello(LauncherHello),
    /// Check whether the job can start on this node.
    Prepare(Box<Prepare>),
    /// Start the workers.
    Start(Start),
    /// Send this signal to every worker's process group.
    Signal(i32),
    /// Kill every process of the job on this node.
    Kill,
    /// Standard input for a worker.
    Stdin {
        /// Rank of the worker.
        rank: Rank,
        /// Input; empty: end of input.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A worker of another node failed; workers of this node need not wait for it.
    PeerGone(Rank),
    /// Number of bytes of output that the launcher has processed; the agent may send as many more.
    Consumed(u64),
    /// Heartbeat of the launcher; the agent answers with [`FromAgent::Clock`].
    Heartbeat {
        /// Time on the launcher's clock.
        at_us: u64,
    },
    /// The launcher is about to be suspended (Ctrl-Z): the workers are suspended too, and missing
    /// heartbeats do not end the lease.
    Pause,
    /// The launcher continues, and so do the workers.
    Resume,
    /// Last message: the agent exits.
    Bye,
    /// No process of this epoch is left on any node, and the next epoch begins: every later frame
    /// of this link belongs to it.
    NextEpoch,
    /// The nodes of the job, a packed [`super::NodeRoster`]: the same bytes for all nodes, before
    /// [`ToAgent::Start`].
    Roster(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Examine this node, and listen for the others. No job follows.
    Examine(Box<Examine>),
    /// Connect to these test listeners. Each connection succeeds or fails within a time limit.
    Probe(Vec<ProbeListener>),
    /// This launcher replaces one that has already begun epochs. No worker was started on this
    /// link, and every later frame of it belongs to this epoch.
    SkipToEpoch(Epoch),
    /// Report the workers that are suspended, with [`FromAgent::Suspended`].
    ReportSuspended,
}

/// Request to start the workers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The workers of this node.
    pub workers: Vec<WorkerStart>,
    /// Address of the store, if there is one.
    pub store: Option<SocketAddr>,
    /// Bytes of output that may be sent before they are [`ToAgent::Consumed`].
    pub window_bytes: u64,
    /// Time after which [`FromAgent::Ungrouped`] is worth a message; 0: never.
    pub group_limit_ms: u32,
}

/// Description of one worker to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStart {
    /// Rank in the job.
    pub rank: Rank,
    /// Rank on the node.
    pub local_rank: LocalRank,
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// Variables to set.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Variables to set unless the environment already has them.
    pub env_default: Vec<(Vec<u8>, Vec<u8>)>,
    /// The same, on a node without a GPU.
    pub env_without_gpu: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether [`ToAgent::Stdin`] supplies its standard input; otherwise it reads `/dev/null`.
    pub stdin: bool,
}

/// What the kernel reported while a worker ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Increase of the count of out-of-memory kills.
    pub oom_kills: u64,
    /// Errors of GPUs that the driver logged about the worker or about a whole GPU (`Xid`).
    pub xids: Vec<String>,
}

/// Message from an agent to the launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromAgent {
    /// Identity of the agent; the first message.
    Hello(AgentHello),
    /// The job can start on this node.
    Ready(PreparedNode),
    /// The job cannot start on this node, for all of these reasons.
    Refused(Vec<Problem>),
    /// A worker has executed its program.
    Started {
        /// Rank of the worker.
        rank: Rank,
        /// Pid of the worker on the node.
        pid: u32,
        /// Time of the start on the agent's clock.
        at_us: u64,
    },
    /// A worker could not execute its program.
    StartFailed(FailedStart),
    /// Output of a worker. Its bytes follow; see [`super::encode_output_head`].
    Output {
        /// Rank of the worker.
        rank: Rank,
        /// Stream that the worker wrote to.
        stream: Stream,
        /// Output, of any length up to [`super::OUTPUT_BYTES_MAX`].
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// End of an output stream.
    OutputEnd {
        /// Rank of the worker.
        rank: Rank,
        /// Stream that ended.
        stream: Stream,
        /// Whether another process still holds the other end open.
        is_held_open: bool,
    },
    /// A worker exited; exactly one message for each worker that started.
    Exited {
        /// Rank of the worker.
        rank: Rank,
        /// How the worker ended.
        exit: WorkerExit,
        /// Time of the exit on the agent's clock.
        at_us: u64,
        /// Signals that the agent had sent to the worker before.
        signals_sent: Vec<i32>,
        /// What the kernel reported meanwhile.
        kernel: KernelReport,
    },
    /// A worker that has exited left processes behind, which are being stopped.
    Leftovers {
        /// Rank of the worker.
        rank: Rank,
        /// Processes that it left behind.
        processes: Vec<Leftover>,
    },
    /// Event that a worker reports about itself.
    Note {
        /// Rank of the worker.
        rank: Rank,
        /// The event.
        note: Note,
    },
    /// The shim exited; its workers were killed.
    ShimExited,
    /// No process of the job is left on this node, except those that could not be killed.
    Idle {
        /// Processes that could not be killed.
        unkillable: Vec<Leftover>,
    },
    /// Heartbeat of the agent.
    Heartbeat,
    /// Answer to [`ToAgent::Pause`]: the workers are being suspended.
    Paused,
    /// Answer to [`ToAgent::Heartbeat`].
    Clock {
        /// Time of the request on the launcher's clock.
        sent_us: u64,
        /// Clock of the agent, in microseconds since the node started.
        clock_us: u64,
    },
    /// Progress of a worker's standard input.
    StdinConsumed {
        /// Rank of the worker.
        rank: Rank,
        /// Bytes of [`ToAgent::Stdin`] that the worker has read or will never read.
        bytes: u64,
    },
    /// Answer to [`ToAgent::Examine`].
    Examined(Box<Examination>),
    /// Answer to [`ToAgent::Probe`], in the order of the request.
    Probed(Vec<ProbeResult>),
    /// Answer to [`ToAgent::ReportSuspended`]: live workers that a signal or a debugger has stopped.
    Suspended(Vec<Rank>),
    /// The workers of the node of rank 0 import torch, and none of them has a connection to rank 0.
    Ungrouped {
        /// `MASTER_ADDR:MASTER_PORT`.
        master: String,
        /// Time without a connection, at least.
        seconds: u32,
    },
    /// Error file that torch's `@record` wrote about the failure of a worker; sent before
    /// [`FromAgent::Exited`].
    ErrorFile {
        /// Rank of the worker.
        rank: Rank,
        /// Time at which the failure was recorded, on the agent's clock.
        at_us: u64,
        /// Content of the file, at most its first [`ERROR_FILE_BYTES_MAX`] bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The shim did not answer for the length of the lease; it and its workers were killed.
    ShimHung,
    /// Where a worker was when it was asked to stop, as its interpreter wrote it; sent before [`FromAgent::Exited`].
    Stack {
        /// Rank of the worker.
        rank: Rank,
        /// The frames, innermost first, at most [`STACK_BYTES_MAX`] bytes.
        #[serde(with = "serde_bytes")]
        text: Vec<u8>,
    },
}

/// Failure to start a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStart {
    /// Rank of the worker.
    pub rank: Rank,
    /// Step that failed.
    pub step: WorkerStartStep,
    /// Error of the kernel.
    pub errno: i32,
}

/// Step of a worker's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerStartStep {
    /// Creation of the memory that the workers of a node share.
    SharedMemory,
    /// Creation of pipes, or fork.
    Fork,
    /// Setup of the session and of descriptors.
    Setup,
    /// Change to the working directory.
    Chdir,
    /// Execution of the program.
    Exec,
}

/// A process that outlived its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Pid on the node.
    pub pid: u32,
    /// Name of the process.
    pub name: String,
}

/// Output stream of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// The name in files and prefixes.
impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

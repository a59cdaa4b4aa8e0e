//! Messages between launcher and agent. These types exist for the wire only: they are append-only,
//! and golden bytes pin their encoding.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::exam::{Examination, Examine, ProbeListener, ProbeResult};
use crate::base::{Epoch, LocalRank, NodeRank, Rank, Slot, Status, WorkerExit};
use crate::secure::JobKey;

/// Version of everything in this file.
pub const VERSION: u32 = 9;

/// Maximum number of bytes of an error file that are sent; a longer file is truncated.
pub const ERROR_FILE_BYTES_MAX: usize = 64 * 1024;

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

/// Request to check whether the job can start on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Program that the workers run, as typed.
    pub program: Vec<u8>,
    /// Script that the program will read.
    pub script: Option<Vec<u8>>,
    /// Number of file descriptors that the agent will need.
    pub fds: u64,
    /// On node 0: addresses for rank 0 and the store.
    pub listen: Option<Listen>,
    /// Key of the job; ranks receive keys derived from it.
    pub key: JobKey,
    /// Number of workers of the job.
    pub world_size: u32,
    /// Time without a heartbeat after which the agent stops the workers.
    pub lease_ms: u32,
    /// Interval of the agent's heartbeats.
    pub heartbeat_ms: u32,
    /// Time between SIGTERM and SIGKILL when the launcher is lost.
    pub grace_ms: u32,
    /// How to bind workers to processors; `None`: they are not bound.
    pub cores: Option<CoreRequest>,
    /// Script that is sourced for the environment of the workers.
    pub venv_script: Option<Vec<u8>>,
    /// GPUs to lock against other jobs.
    pub gpu_locks: Option<GpuLockRequest>,
    /// Further files that workers of this node will need.
    pub files: Vec<RequiredFile>,
    /// Whether the paths are also checked on another machine, or were named on another one.
    pub spans_machines: bool,
}

/// A file that workers will need, and its required state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredFile {
    /// Path, relative to the working directory.
    pub path: Vec<u8>,
    /// Required state.
    pub state: FileState,
    /// Help for the user if the file is not in this state.
    pub help: String,
    /// Scope of the problem if the file is not in this state.
    pub scope: ProblemScope,
}

/// Scope of a problem: one node, or the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProblemScope {
    /// The problem concerns this node: the job can run without it.
    Node,
    /// The problem concerns the job: a replacement of this node would have it too.
    Job,
}

/// Required state of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileState {
    /// The path is a readable file or directory.
    Readable,
    /// The path is not a directory that contains files with this suffix.
    NoFilesWithSuffix(String),
}

/// Request to lock GPUs against other jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuLockRequest {
    /// Slots of the GPUs; a slot without a GPU is not locked.
    pub slots: Vec<Slot>,
    /// Whether the GPUs may be shared with jobs that use them already.
    pub share: bool,
}

/// Request to divide processors among the workers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreRequest {
    /// Processors to divide; `None`: one of each core.
    pub list: Option<Vec<u32>>,
    /// Number of workers of the node.
    pub workers: u32,
}

/// Addresses on which node 0 is to listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// Address at which the other nodes connect to it; `None`: node 0 chooses it.
    pub addr: Option<String>,
    /// Port for rank 0.
    pub port: PortRequest,
    /// Some of the other hosts, as the hostfile names them.
    pub others: Vec<String>,
    /// Whether the workers need a store, as they do on several nodes.
    pub store: bool,
    /// Port of the store; 0: the kernel chooses one.
    pub store_port: u16,
}

/// Requested port for rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortRequest {
    /// This port and no other.
    Exact(u16),
    /// This port if it is free, otherwise any free one.
    Preferred(u16),
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
    /// Whether [`ToAgent::Stdin`] supplies its standard input; otherwise it reads `/dev/null`.
    pub stdin: bool,
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
        /// Increase of the kernel's count of out-of-memory kills while the worker ran.
        oom_kills: u64,
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
        note: WorkerNote,
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
}

/// Facts that a node determined while it prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedNode {
    /// On node 0: address on which rank 0 will listen.
    pub master: Option<MasterEndpoint>,
    /// On node 0: address of the store.
    pub store: Option<SocketAddr>,
    /// Number of CPUs that the workers may use.
    pub cpus: u32,
    /// Notes about this node for the user.
    pub notes: Vec<String>,
}

/// Address on which rank 0 will listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterEndpoint {
    /// Address at which the other nodes connect to rank 0.
    pub addr: String,
    /// Port, which was free when the node prepared.
    pub port: u16,
}

/// A reason why a node cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Description of the problem.
    pub message: String,
    /// What the user can do about it.
    pub help: Option<String>,
    /// Exit status of the job that it causes.
    pub status: u8,
    /// Scope of the problem.
    pub scope: ProblemScope,
}

impl Problem {
    /// A problem of the node, with the exit status that it causes.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            status: status.code(),
            scope: ProblemScope::Node,
        }
    }

    /// Marks the problem as one that a replacement of the node would have too.
    #[must_use]
    pub fn of_job(self) -> Self {
        Self { scope: ProblemScope::Job, ..self }
    }

    /// Sets the help text.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
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
    /// Creation of pipes, or fork.
    Fork,
    /// Setup of the session and of descriptors.
    Setup,
    /// Change to the working directory.
    Chdir,
    /// Execution of the program.
    Exec,
}

/// Event that a worker reports about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerNote {
    /// Its group is complete, and its work begins.
    Ready,
    /// A training step is complete.
    Step {
        /// Number of the step, from 1 on.
        step: u64,
        /// Total number of steps, if known.
        steps: Option<u64>,
        /// Loss of the step.
        loss: Option<f64>,
        /// Speed of all workers together.
        tokens_per_s: Option<f64>,
    },
    /// An operation failed because this rank was lost.
    PeerLost(Rank),
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

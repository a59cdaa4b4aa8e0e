//! The check of a node before the workers start: the request, and what the node found. Append-only,
//! like the messages that contain these types.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::base::{Slot, Status};
use crate::plan::NumaBinding;
use crate::secure::JobKey;

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
    /// Number that every rank of the job is below.
    pub rank_limit: u32,
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
    /// Package that the Python of the workers must have.
    pub package: Option<RequiredPackage>,
}

/// A package that the Python of the workers must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredPackage {
    /// Its name as a distribution.
    pub name: String,
    /// The option that needs it, as a user types it.
    pub option: String,
    /// Variables that workers get and that say where Python searches packages.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
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
    NoFilesWithPrefix(String),
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
    /// Processors near GPUs, instead of those of `list`.
    pub near_gpus: Option<NumaBinding>,
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
    /// This port; any free one if another agent of the job on the same machine has it.
    Shared(u16),
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

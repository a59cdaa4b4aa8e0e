//! What a launch needs beside its plan.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::argument_hints::LauncherFlag;
use super::codes;
use super::termination_log::TerminationLog;
use crate::base::{JobId, NodeRank, Rank, Status};
use crate::job::{OnTerm, Warning};
use crate::report::{LogDir, RunDir, Style};
use crate::secure::JobKey;
use crate::transport::dial::BindError;
use crate::transport::ssh::SshOptions;
use crate::wire::FileWish;

/// See the fields.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the job.
    pub job: JobId,
    /// Key of the job, from which ranks' keys are derived.
    pub key: JobKey,
    /// What was typed, for the record.
    pub command: Vec<OsString>,
    /// Options of the command line, for hints about one that was typed behind the script.
    pub flags: fn() -> Vec<LauncherFlag>,
    /// Working directory of the workers.
    pub cwd: PathBuf,
    /// The program, as typed.
    pub program: OsString,
    /// A file that the program is about to read; its absence is told before anything starts.
    pub script: Option<OsString>,
    /// Files that workers will need; nodes look for them before anything starts.
    pub files: Vec<WorkersFile>,
    /// Time between asking workers to stop and killing them.
    pub grace: Duration,
    /// Silence after which a link counts as lost.
    pub lease: Duration,
    /// How often both ends of a link say that they live.
    pub beat: Duration,
    /// Time that the job may take.
    pub timeout: Option<Duration>,
    /// Time that a node may take to look whether it can start.
    pub agent_limit: Duration,
    /// How often workers are started anew after a failure.
    pub restarts_max: u32,
    /// What workers hear before they are asked to stop.
    pub warning: Option<Warning>,
    /// Who reads our standard input.
    pub stdin: StdinTo,
    /// How output looks and where it is kept.
    pub style: Style,
    /// Whether the user hears of what happens and is no failure.
    pub talks: bool,
    /// Time after which workers that import torch and are not connected are worth a warning; 0: never.
    pub group_limit: Duration,
    /// Whether workers are bound to processors of their own.
    pub cores: Option<Cores>,
    /// Script that nodes read before workers start.
    pub venv_script: Option<PathBuf>,
    /// Whether GPUs are kept from other jobs.
    pub claims: GpuSharing,
    /// Whether a failure lets the other workers run on.
    pub lets_run: bool,
    /// Who of the workers judges what all have found.
    pub judge: CauseRule,
    /// Lines that are said when every node is ready, before anything starts; a job that is refused
    /// says its reasons alone.
    pub announcement: String,
    /// How the user goes on without a host.
    pub way_on: ContinueWith,
    /// Where workers keep what a later job can go on from.
    pub kept: Option<PathBuf>,
    /// The lines of remuda around a job that ends well.
    pub framing: Framing,
    /// Where `run.json` goes; of a job that never began nothing is left.
    pub run_dir: Option<RunDir>,
    /// Where `--log_dir` keeps what workers write; an empty one of a job that never began is removed.
    pub log_dir: Option<LogDir>,
    /// What the keeper of a pod is told.
    pub keeper: SupervisorOptions,
    /// How nodes are reached.
    pub transport: Transport,
}

/// The lines of remuda around a job that ends well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Framing {
    /// None.
    None,
    /// Where the logs are.
    Start,
    /// The same, and that every worker has returned 0.
    StartAndEnd,
}

/// A file that workers will need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersFile {
    /// Owner of the file.
    pub of: FileOf,
    /// Which, and how it must be.
    pub wish: FileWish,
}

/// Who needs a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOf {
    /// Every worker, on its node.
    Everybody,
    /// Rank 0 alone.
    Rank0,
}

/// How the user goes on without a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContinueWith {
    /// By `--exclude`, which names these already.
    Exclude(String),
    /// By another hostfile: the hosts were chosen by options beside which `--exclude` is refused.
    Hostfile,
    /// Somebody else starts the nodes.
    Nothing,
}

/// What whoever keeps this process is told, beside its exit status: the kubelet of a pod.
#[derive(Clone, Debug, Default)]
pub struct SupervisorOptions {
    /// Where probes are answered.
    pub status_addr: Option<SocketAddr>,
    /// The file that says at the end how the job went.
    pub termination_log: Option<TerminationLog>,
    /// Whether it is Kubernetes, whose commands show why a node is gone.
    pub is_kubernetes: bool,
    /// What it means by SIGTERM.
    pub on_term: OnTerm,
}

/// How nodes are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Every node is this machine.
    Local,
    /// Every node, this machine included, is reached over ssh.
    Ssh(SshOptions),
    /// This is node 0, and the agents of the others dial in.
    Dial(DialOptions),
}

/// How nodes that are started one by one come together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialOptions {
    /// Name of the job, which all nodes know.
    pub job: JobId,
    /// Key of the job.
    pub key: JobKey,
    /// Where that was read, for messages.
    pub key_file: String,
    /// Name or address of node 0.
    pub address: String,
    /// The port at which it lets agents in.
    pub port: u16,
    /// The port of its store.
    pub store_port: u16,
    /// The address at which the others find the workers of this node; `None`: as its routes say.
    pub local_addr: Option<IpAddr>,
    /// How long nodes wait for each other.
    pub join_limit: Duration,
    /// The exit status of a node that is stopped because another one failed; `None`: that one's.
    pub peer_exit: Option<u8>,
}

impl DialOptions {
    /// The exit status of a node, that of the job unless another node was the cause of it.
    pub(super) fn status_of(&self, own: NodeRank, job: Status, cause: Option<NodeRank>) -> Status {
        match (cause, self.peer_exit) {
            (Some(cause), Some(peer_exit)) if cause != own => Status::Worker(peer_exit),
            _ => job,
        }
    }
}

/// Who of the workers judges what all have found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseRule {
    /// Nobody: an end with another code than 0 is a failure.
    Nobody,
    /// Rank 0: it ends with 1 because of what it has said on its standard error.
    Rank0,
}

/// Which processors are shared out among the workers of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cores {
    /// One of each core that may be used.
    All,
    /// These, in ascending order.
    List(Vec<u32>),
}

/// Whether GPUs are kept from other jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSharing {
    /// They are: one that another job has is a reason not to start.
    Exclusive,
    /// They are, but what another job has is shared with it.
    Shared,
    /// Slots are no GPUs, or nothing is computed on them.
    None,
}

/// Who reads our standard input; everybody else reads `/dev/null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinTo {
    /// No worker reads standard input.
    Nobody,
    /// One worker.
    Rank(Rank),
    /// Every worker reads all of it.
    All,
}

impl StdinTo {
    /// Whether this worker does.
    pub fn includes(self, rank: Rank) -> bool {
        match self {
            Self::Nobody => false,
            Self::Rank(only) => only == rank,
            Self::All => true,
        }
    }
}

/// Why a launch could not even begin.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Node 0 cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Probes cannot be answered.
    #[error("cannot answer probes at {address}: {error}")]
    Status {
        /// Address of the endpoints.
        address: SocketAddr,
        /// The kernel's reason.
        error: std::io::Error,
    },
    /// Threads, pipes or memory.
    #[error("cannot start the launcher: {0}")]
    Os(#[from] std::io::Error),
    /// Links and files of ranks.
    #[error(
        "the job needs {needed} open files here, the limit is {limit}; raise it with `ulimit -n`"
    )]
    OpenFiles {
        /// Number of open files that are needed.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
}

impl LaunchError {
    /// The exit status that tells it.
    pub fn status(&self) -> Status {
        match self {
            Self::Os(_) | Self::OpenFiles { .. } => Status::OsLimit,
            Self::Status { .. } => Status::Config,
            Self::Bind(error) => match error {
                BindError::NoSuchName { .. } | BindError::NotOurs(_) | BindError::Taken { .. } => {
                    Status::Config
                }
                BindError::Os { .. } => Status::OsLimit,
            },
        }
    }

    /// Its stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bind(_) => codes::CANNOT_LISTEN,
            Self::Os(_) => codes::SYSTEM_REFUSED,
            Self::OpenFiles { .. } => codes::TOO_FEW_FILES,
            Self::Status { .. } => codes::NO_STATUS,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Os(_) | Self::OpenFiles { .. } | Self::Bind(BindError::Os { .. }) => None,
            Self::Status { .. } => Some("give another `--status_addr`, an address of this pod"),
            Self::Bind(BindError::NoSuchName { .. } | BindError::NotOurs(_)) => {
                Some("`--master_addr` is an address or a name of node 0, the same on every node")
            }
            Self::Bind(BindError::Taken { .. }) => {
                Some("give all nodes another `--master_port`; the two ports behind it are ours")
            }
        }
    }
}

//! Options of a launch, beside its plan.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::codes;
use crate::base::{JobId, NodeRank, Rank, Status};
use crate::job::{ElasticNodes, MeetingPoint, OnTerm, Warning};
use crate::launch::node::join_limit::JoinLimit;
use crate::launch::pod::termination_log::TerminationLog;
use crate::launch::screen::argument_hints::LauncherFlag;
use crate::os::files::fds::TooFewFiles;
use crate::plan::{self, LaunchPlan, NumaBinding};
use crate::report::{LogDir, RunDir, Style};
use crate::secure::JobKey;
use crate::transport::dial::{BindError, BoundListener, JoinWait, KeyOrigin, NameStart};
use crate::transport::manager::ManagerOptions;
use crate::transport::ssh::SshOptions;
use crate::wire::{Problem, RequiredFile, RequiredPackage};

/// Options of a launch that are not part of its plan: names, limits, output, transport.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the job.
    pub job: JobId,
    /// Key of the job, from which the keys of ranks are derived.
    pub key: JobKey,
    /// What workers execute, and what it needs.
    pub command: CommandOptions,
    /// Time limits.
    pub limits: LimitOptions,
    /// What happens after a failure.
    pub failure: FailureOptions,
    /// What is printed and kept.
    pub output: OutputOptions,
    /// CPUs and GPUs of workers.
    pub devices: DeviceOptions,
    /// Workers that read the launcher's standard input.
    pub stdin: StdinTo,
    /// Options for the supervisor of a pod.
    pub supervisor: SupervisorOptions,
    /// How nodes are reached.
    pub transport: Transport,
    /// How the number of nodes may vary; `None`: all nodes take part.
    pub elastic: Option<ElasticNodes>,
}

/// What workers execute, and what it needs.
#[derive(Clone, Debug)]
pub struct CommandOptions {
    /// The command line as typed, for the run record.
    pub typed: Vec<OsString>,
    /// Options of the command line, for hints about one that was typed behind the script.
    pub flags: fn() -> Vec<LauncherFlag>,
    /// Working directory of the workers.
    pub cwd: PathBuf,
    /// The program, as typed.
    pub program: OsString,
    /// A file that the program is about to read; if it is missing, that is reported before the
    /// start.
    pub script: Option<OsString>,
    /// Files that workers will need; nodes check them before the start.
    pub files: Vec<WorkersFile>,
    /// Script that nodes source before workers start.
    pub venv_script: Option<PathBuf>,
    /// What workers keep for a later job.
    pub kept_state: Option<KeptState>,
    /// Package that the Python of the workers must have; nodes check it before the start.
    pub package: Option<RequiredPackage>,
}

/// Checkpoints that workers write, from which a later job can continue.
#[derive(Clone, Debug)]
pub struct KeptState {
    /// Directory of the checkpoints.
    pub dir: PathBuf,
    /// Whether checkpoints are also written while the job runs, and not only at its end.
    pub is_saved_regularly: bool,
    /// Whether the line continues if it is typed again as it is.
    pub repeats_line: bool,
    /// What to type to continue, for example: add `--resume auto`.
    pub advice: String,
    /// Finds the newest undamaged checkpoint of the directory within a bounded time.
    pub newest: fn(&Path) -> Option<NewestStep>,
}

/// The newest checkpoint from which a later job can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewestStep {
    /// Its step; every byte of it is undamaged.
    Undamaged(u64),
    /// Its step; there was no time to read all of it.
    NotRead(u64),
}

/// End of the allocation in which this process runs.
#[derive(Clone, Debug)]
pub struct AllocationEnd {
    /// Name of the allocation: `Slurm job 17`.
    pub name: String,
    /// Time that is left of it, if it is known without asking the scheduler.
    pub left: Option<Duration>,
    /// Time before the end at which the workers are asked to stop.
    pub lead: Duration,
    /// Asks the scheduler for the time that is left now; `None`: it does not tell, or there is no end.
    pub ask: fn() -> Option<Duration>,
}

impl AllocationEnd {
    /// Time until the workers are asked to stop if so much is left: at least half of it.
    pub fn running_time(&self, left: Duration) -> Duration {
        left.saturating_sub(self.lead).max(left / 2)
    }
}

/// Time limits of a launch.
#[derive(Clone, Debug)]
pub struct LimitOptions {
    /// Time between the request to stop and SIGKILL.
    pub grace: Duration,
    /// Time without a heartbeat after which a link counts as lost.
    pub lease: Duration,
    /// Interval of the heartbeats that both ends of a link send.
    pub heartbeat_interval: Duration,
    /// Time limit of the job.
    pub job: Option<Duration>,
    /// End of the allocation.
    pub allocation: Option<AllocationEnd>,
    /// Time limit of the checks of a node before the start.
    pub preflight: Duration,
    /// Time after which workers that import torch and are not connected cause a warning; 0: never.
    pub group: Duration,
}

/// What happens after a failure.
#[derive(Clone, Debug)]
pub struct FailureOptions {
    /// Maximum number of restarts.
    pub restarts_max: u32,
    /// Pause before the first one.
    pub first_pause: Duration,
    /// The signal that workers receive before they are asked to stop.
    pub warning: Option<Warning>,
    /// Whether the other workers run on.
    pub lets_others_run: bool,
    /// The worker that judges the results of all workers.
    pub cause_rule: CauseRule,
    /// How the user can continue without a host.
    pub continue_with: ContinueWith,
}

/// What a launch prints and keeps.
#[derive(Clone, Debug)]
pub struct OutputOptions {
    /// Format of the output of workers, and where it is kept.
    pub style: Style,
    /// Whether events that are no failure are reported to the user.
    pub shows_progress: bool,
    /// Lines that are printed when every node is ready, before anything starts; a refused job
    /// prints only its reasons.
    pub announcement: String,
    /// The lines that remuda prints around a successful job.
    pub framing: Framing,
    /// Directory of `run.json`; nothing of it is left if the job never began.
    pub run_dir: Option<RunDir>,
    /// Directory in which `--log_dir` keeps the output of workers; if it is empty, it is removed
    /// when the job never began.
    pub log_dir: Option<LogDir>,
    /// Gets the error file of the worker that is the cause: the launcher that started this one reads it.
    pub error_file: Option<PathBuf>,
}

/// CPUs and GPUs of workers.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// The CPUs to which workers are bound, each to its own; `None`: they are not bound.
    pub cores: Option<Cores>,
    /// Whether GPUs are locked against other jobs.
    pub gpu_sharing: GpuSharing,
}

/// The lines that remuda prints around a successful job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Framing {
    /// No lines.
    None,
    /// The directory of the logs.
    Start,
    /// The directory of the logs, and that every worker returned 0.
    StartAndEnd,
}

/// A file that workers will need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersFile {
    /// Owner of the file.
    pub owner: FileOf,
    /// The file, and the state that it must be in.
    pub file: RequiredFile,
}

/// Workers that need a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOf {
    /// Every worker, on its node.
    AllWorkers,
    /// Rank 0 alone.
    Rank0,
}

/// How the user can continue without a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContinueWith {
    /// With `--exclude`, which already names these hosts.
    Exclude(String),
    /// With another hostfile: the hosts were chosen by options that cannot be combined with
    /// `--exclude`.
    Hostfile,
    /// Not by an option of remuda: another system starts the nodes.
    Nothing,
}

/// Options for the supervisor of this process, the kubelet of a pod: what it reads beside the exit
/// status.
#[derive(Clone, Debug, Default)]
pub struct SupervisorOptions {
    /// Address at which probes are answered.
    pub status_addr: Option<SocketAddr>,
    /// The file for the final report of the job.
    pub termination_log: Option<TerminationLog>,
    /// Whether the supervisor is Kubernetes, whose commands show why a node was lost.
    pub is_kubernetes: bool,
    /// What the supervisor means by SIGTERM.
    pub on_term: OnTerm,
}

/// How nodes are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Every node is this machine.
    Local,
    /// Every node, this machine included, is reached over ssh.
    Ssh(SshOptions),
    /// This is node 0, and the agents of the other nodes connect to it.
    Dial(DialOptions),
    /// A process manager starts the agents, which connect to this machine.
    Managed(ManagerOptions),
}

/// Options for nodes that are started one by one and connect to node 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialOptions {
    /// Name of the job, which all nodes know.
    pub job: JobId,
    /// Key of the job.
    pub key: JobKey,
    /// Where the key is from.
    pub key_origin: KeyOrigin,
    /// Name or address of node 0.
    pub address: String,
    /// The port at which node 0 accepts agents.
    pub port: u16,
    /// Where that port is from.
    pub port_origin: PortOrigin,
    /// The socket of node 0 at this address, if it is open already.
    pub listener: Option<BoundListener>,
    /// The port of its store; 0: the kernel chooses one.
    pub store_port: u16,
    /// The address at which other nodes reach the workers of this node; `None`: the one that its
    /// routes determine.
    pub local_addr: Option<IpAddr>,
    /// Whether the line has the names of the hosts; otherwise nodes are known by number until they join.
    pub has_host_names: bool,
    /// How long nodes wait for each other.
    pub join_limit: JoinLimit,
    /// How long the other nodes wait for another node 0 after the loss of the first one.
    pub return_limit: JoinLimit,
    /// Why this node cannot start its workers, as far as that is known before it connects.
    pub problems: Vec<Problem>,
    /// The exit status of a node that is stopped because another one failed; `None`: that of the
    /// failed node.
    pub peer_exit: Option<u8>,
    /// Whether a process manager started this process, so that its variables describe this process and not
    /// the workers.
    pub is_task: bool,
    /// Whether this node has its screen in common with node 0, as all tasks of a step.
    pub shares_screen: bool,
    /// Options of the line, for messages.
    pub options: NodeOptions,
    /// When the name of node 0 begins to exist.
    pub name_start: NameStart,
    /// What to type if the wait of this node does not end.
    pub wait_help: Box<WaitHelp>,
}

/// What to type if the wait of a node for others does not end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitHelp {
    /// If the name of node 0 does not resolve.
    pub unresolved: Option<String>,
    /// If nothing starts the others.
    pub not_started: Option<String>,
}

impl WaitHelp {
    /// The help for this reason of the wait for node 0.
    pub(super) fn of(&self, why: &JoinWait) -> Option<&str> {
        match why {
            JoinWait::Unresolved(_) => self.unresolved.as_deref(),
            JoinWait::Unreachable(_) => self.not_started.as_deref(),
            JoinWait::NotAccepted(_) => None,
        }
    }
}

/// Where the port for agents is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortOrigin {
    /// The user has typed it, or it follows from the name of the job.
    Own,
    /// It is the one after the port of rank 0.
    AfterMaster,
    /// It follows from this port of rank 0, and is far from it.
    OfMaster(u16),
}

/// Options of a line that starts one node, as the user types them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The option that sets the number of the node.
    pub number: String,
    /// The option that sets the port.
    pub port: String,
}

impl Options {
    /// Whether the number of nodes may vary, and nodes and launcher meet here.
    pub(super) fn meets_at(&self, place: MeetingPoint) -> bool {
        self.elastic.is_some_and(|elastic| elastic.meeting == place)
    }
}

impl DialOptions {
    /// Whether every node executes its own line: the lines name no hosts, as those of torchrun and accelerate, or
    /// the nodes have no secret in common.
    pub fn has_own_lines(&self) -> bool {
        !self.has_host_names || !self.key_origin.is_secret()
    }

    /// The digest of a plan that nodes compare.
    pub(super) fn digest(&self, plan: &LaunchPlan) -> [u8; 32] {
        if self.has_own_lines() { plan::line_digest(plan) } else { plan::digest(plan) }
    }

    /// The lines of a plan that nodes compare.
    pub(super) fn outline(&self, plan: &LaunchPlan) -> Vec<String> {
        if self.has_own_lines() { plan::line_outline(plan) } else { plan::outline(plan) }
    }

    /// The port that the user has typed, if that of the agents is far from it.
    pub(super) fn typed_port(&self) -> Option<u16> {
        match self.port_origin {
            PortOrigin::OfMaster(master) => Some(master),
            PortOrigin::Own | PortOrigin::AfterMaster => None,
        }
    }

    /// The port at which node 0 accepts agents, with its origin where the user has typed another number.
    pub fn show_port(&self) -> String {
        let port = self.port;
        match self.port_origin {
            PortOrigin::Own => port.to_string(),
            PortOrigin::AfterMaster => format!("{port} (master port + 1)"),
            PortOrigin::OfMaster(master) => format!("{port} (for master port {master})"),
        }
    }

    /// The exit status of a node: that of the job, unless another node was the cause of it.
    pub(super) fn status_of(&self, own: NodeRank, job: Status, cause: Option<NodeRank>) -> Status {
        match (cause, self.peer_exit) {
            (Some(cause), Some(peer_exit)) if cause != own => Status::Worker(peer_exit),
            _ => job,
        }
    }
}

/// The worker that judges the results of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseRule {
    /// None: an exit with another code than 0 is a failure.
    ExitCodes,
    /// Rank 0: it exits with 1 because of the findings that it printed on standard error.
    Rank0,
}

/// The CPUs that are shared out among the workers of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cores {
    /// One CPU of each core that may be used.
    All,
    /// These CPUs, in ascending order.
    List(Vec<u32>),
    /// CPUs near the GPU of each worker.
    NearGpus(NumaBinding),
}

/// Whether GPUs are locked against other jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSharing {
    /// They are locked: a GPU that another job holds is a reason not to start.
    Exclusive,
    /// They are locked, but a GPU that another job holds is shared with it.
    Shared,
    /// They are not locked: slots are no GPUs, or no worker computes on them.
    None,
}

/// Workers that read the launcher's standard input; all others read `/dev/null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinTo {
    /// No worker reads standard input.
    None,
    /// The worker with this rank.
    Rank(Rank),
    /// Every worker reads all of it.
    All,
}

impl StdinTo {
    /// Whether this worker reads standard input.
    pub fn includes(self, rank: Rank) -> bool {
        match self {
            Self::None => false,
            Self::Rank(only) => only == rank,
            Self::All => true,
        }
    }
}

/// Why a launch could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Node 0 cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Another process uses the port of node 0.
    #[error("port {} of `{}` is in use", .0.port, .0.address)]
    PortTaken(Box<DialOptions>),
    /// Node 0 of the same job was started before.
    #[error(
        "node 0 of this job{} runs already: it listens on port {} of `{}`",
        .dial.key_origin.show_common(), .dial.port, .dial.address
    )]
    SecondFirst {
        /// How the nodes connect.
        dial: Box<DialOptions>,
        /// Number of nodes.
        nodes: usize,
    },
    /// Probes cannot be answered.
    #[error("cannot answer probes at {address}: {error}")]
    Status {
        /// Address of the endpoints.
        address: SocketAddr,
        /// The kernel's reason.
        error: std::io::Error,
    },
    /// The kernel refused a thread, a pipe or memory.
    #[error("cannot start the launcher: {0}")]
    Os(#[from] std::io::Error),
    /// The links and the files of ranks need more file descriptors than are allowed.
    #[error("the job needs {needed} open files here, {0}", needed = .0.needed)]
    OpenFiles(#[from] TooFewFiles),
}

impl LaunchError {
    /// The exit status for this error.
    pub fn status(&self) -> Status {
        match self {
            Self::Os(_) | Self::OpenFiles(_) => Status::OsLimit,
            Self::Status { .. } | Self::PortTaken(_) | Self::SecondFirst { .. } => Status::Config,
            Self::Bind(error) => match error {
                BindError::NoSuchName { .. } | BindError::NotLocal(_) | BindError::Taken { .. } => {
                    Status::Config
                }
                BindError::Os { .. } => Status::OsLimit,
            },
        }
    }

    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bind(_) | Self::PortTaken(_) | Self::SecondFirst { .. } => codes::CANNOT_LISTEN,
            Self::Os(_) => codes::SYSTEM_REFUSED,
            Self::OpenFiles(_) => codes::TOO_FEW_FILES,
            Self::Status { .. } => codes::NO_STATUS,
        }
    }

    /// Advice for this error.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Os(_)
            | Self::OpenFiles(_)
            | Self::Bind(BindError::Os { .. } | BindError::Taken { .. }) => return None,
            Self::Status { .. } => "set `--status_addr` to an address of this pod".to_owned(),
            Self::Bind(BindError::NoSuchName { .. } | BindError::NotLocal(_)) => {
                "set `--master_addr` to an address or a name of node 0, the same on every node"
                    .to_owned()
            }
            Self::PortTaken(dial) => {
                let more = match dial.port_origin {
                    PortOrigin::Own => "",
                    PortOrigin::AfterMaster => "; remuda also uses the two ports after it",
                    PortOrigin::OfMaster(_) => "; the port for agents follows from it",
                };
                format!("set another `{}` on all nodes{more}", dial.options.port)
            }
            Self::SecondFirst { dial, nodes } => {
                let NodeOptions { number, port } = &dial.options;
                let other = match nodes {
                    0..=2 => format!("`{number} 1`"),
                    _ => format!("`{number} N` with a number from 1 to {}", nodes - 1),
                };
                format!(
                    "for another node of it type {other}; for another job set another `{port}` on all of its nodes"
                )
            }
        })
    }
}

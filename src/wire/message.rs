//! The messages. Types made for the wire: append-only, pinned by golden bytes.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::exam::{Dialed, Door, Examination, Examine};
use crate::base::{Epoch, LocalRank, NodeRank, Rank, Slot, Status, WorkerExit};
use crate::secure::JobKey;

/// Version of everything in this file.
pub const VERSION: u32 = 9;

/// First word of the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherHello {
    /// [`VERSION`] of the launcher.
    pub version: u32,
    /// Its build, for the message when versions differ.
    pub build: String,
    /// The job.
    pub job: String,
    /// Which node the agent is.
    pub node: NodeRank,
}

/// First word of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// Its build.
    pub build: String,
    /// The agent's pid.
    pub pid: u32,
    /// Its clock, in microseconds since the node started.
    pub clock_us: u64,
}

/// Launcher → agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Who speaks.
    Hello(LauncherHello),
    /// Look whether the job could start here.
    Prepare(Box<Prepare>),
    /// Start the workers.
    Start(Start),
    /// Signal every worker's process group.
    Signal(i32),
    /// Kill everything of the job on this node.
    Kill,
    /// Input for a worker.
    Stdin {
        /// Which worker.
        rank: Rank,
        /// What it may read; empty: the end.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A worker of another node failed; those of this node need not wait for it.
    PeerGone(Rank),
    /// Output of that many bytes has been dealt with.
    Consumed(u64),
    /// The launcher lives; the agent says what its clock shows.
    Beat {
        /// When, on the launcher's clock.
        at_us: u64,
    },
    /// The launcher is about to be stopped (Ctrl-Z): the workers stop too, and its silence means
    /// nothing.
    Pause,
    /// It is back, and the workers go on.
    Resume,
    /// Nothing more is wanted: end.
    Bye,
    /// Nothing of this epoch is left, here or elsewhere. The next one begins: whatever follows on this
    /// link is of it.
    Renew,
    /// Who takes part, a packed [`super::Roster`]: the same bytes for all nodes, before
    /// [`ToAgent::Start`].
    Roster(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Look this node over, and listen for the others. No job follows.
    Examine(Box<Examine>),
    /// Knock at these doors; each is answered or not within a bounded time.
    Dial(Vec<Door>),
    /// This launcher stands in the place of one that has begun epochs. Nothing was started on this
    /// link, and whatever follows on it is of this epoch.
    Skip(Epoch),
    /// Somebody wants to know how the workers are doing.
    Look,
}

/// What a node must have for the job to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Program that the workers run, as typed.
    pub program: Vec<u8>,
    /// File that the program is about to read (a script).
    pub script: Option<Vec<u8>>,
    /// Descriptors that the agent will need.
    pub fds: u64,
    /// Node 0: where rank 0 and the store listen.
    pub listen: Option<Listen>,
    /// Key of the job; ranks get keys derived from it.
    pub key: JobKey,
    /// Workers of the job.
    pub world_size: u32,
    /// Silence after which the agent stops the workers.
    pub lease_ms: u32,
    /// How often the agent says that it lives.
    pub beat_ms: u32,
    /// Time between TERM and KILL when the launcher is gone.
    pub grace_ms: u32,
    /// Whether workers are bound to processors of their own.
    pub cores: Option<CoreWish>,
    /// Script whose environment the workers get.
    pub venv_script: Option<Vec<u8>>,
    /// GPUs that no other job may use.
    pub claim: Option<ClaimWish>,
    /// Files beside the script that workers of this node will need.
    pub files: Vec<FileWish>,
    /// Whether the paths are also looked for on another machine, or were typed on one.
    pub elsewhere: bool,
}

/// A file as workers will need it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWish {
    /// Which; seen from the working directory.
    pub path: Vec<u8>,
    /// How it must be.
    pub state: FileState,
    /// What the user can do if it is not.
    pub help: String,
    /// Whose trouble it is then.
    pub blame: Blame,
}

/// Whose trouble a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blame {
    /// The node's: the job can go on without it.
    Node,
    /// The job's: another node would meet it in this one's place.
    Job,
}

/// How a file must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileState {
    /// A file, or a directory, that can be read.
    Readable,
    /// No directory that holds files with this ending.
    Without(String),
}

/// GPUs are kept from other jobs, or shared with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimWish {
    /// Those of these slots; a slot without a GPU is nobody's.
    pub slots: Vec<Slot>,
    /// Whether another job that has one is no reason to refuse.
    pub share: bool,
}

/// Processors are shared out among the workers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreWish {
    /// These; `None`: one of each core.
    pub list: Option<Vec<u32>>,
    /// Workers of the node.
    pub workers: u32,
}

/// What is wanted of node 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// Address at which the other nodes reach it; `None`: it knows best.
    pub addr: Option<String>,
    /// Port for rank 0.
    pub port: PortWish,
    /// Some of the other hosts, as the hostfile names them.
    pub others: Vec<String>,
    /// Whether the workers need a store: they do on several nodes.
    pub store: bool,
    /// Its port; 0: one of the kernel's choice.
    pub store_port: u16,
}

/// Which port rank 0 is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortWish {
    /// This one or none.
    Exactly(u16),
    /// This one, or else any that is free.
    Rather(u16),
}

/// Everything that starts the workers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The workers of this node.
    pub workers: Vec<WorkerStart>,
    /// Where the store listens, if there is one.
    pub store: Option<SocketAddr>,
    /// Output that may be on its way and not yet [`ToAgent::Consumed`].
    pub window_bytes: u64,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStart {
    /// Its rank.
    pub rank: Rank,
    /// Its rank on the node.
    pub local_rank: LocalRank,
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// Variables to set.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Variables to set unless the environment already has them.
    pub env_default: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether [`ToAgent::Stdin`] will come; otherwise it reads `/dev/null`.
    pub stdin: bool,
}

/// Agent → launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromAgent {
    /// Who speaks.
    Hello(AgentHello),
    /// The job could start here.
    Ready(Found),
    /// It could not, for all these reasons.
    Refused(Vec<Problem>),
    /// A worker became its program.
    Started {
        /// Which.
        rank: Rank,
        /// Its pid on the node.
        pid: u32,
        /// When, on the agent's clock.
        at_us: u64,
    },
    /// A worker could not become its program.
    StartFailed(FailedStart),
    /// A worker wrote. Its bytes follow; see [`super::encode_output_head`].
    Output {
        /// Which.
        rank: Rank,
        /// Where.
        stream: Stream,
        /// What.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Nothing more will come from this stream.
    OutputEnd {
        /// Which worker.
        rank: Rank,
        /// Which stream.
        stream: Stream,
        /// Somebody still holds the other end.
        held: bool,
    },
    /// A worker ended; exactly one for each that started.
    Exited {
        /// Which.
        rank: Rank,
        /// How.
        exit: WorkerExit,
        /// When, on the agent's clock.
        at_us: u64,
        /// Signals that we had sent it before.
        sent: Vec<i32>,
        /// By how much the kernel's count of out-of-memory kills rose while it ran.
        oom_kills: u64,
    },
    /// A worker that has ended left processes behind, which are being stopped.
    Leftovers {
        /// Which worker.
        rank: Rank,
        /// What it left.
        processes: Vec<Leftover>,
    },
    /// A worker says something about itself.
    Note {
        /// Which.
        rank: Rank,
        /// What.
        note: WorkerNote,
    },
    /// The shim died; its workers were killed.
    ShimDied,
    /// No process of the job is left on this node, but for these.
    Idle {
        /// What could not be killed.
        undead: Vec<Leftover>,
    },
    /// The agent lives.
    Beat,
    /// The answer to [`ToAgent::Pause`]: the workers are being stopped.
    Paused,
    /// The answer to [`ToAgent::Beat`].
    Clock {
        /// When it was asked, on the launcher's clock.
        asked_us: u64,
        /// The agent's clock, in microseconds since the node started.
        clock_us: u64,
    },
    /// A worker has taken, or will never take, that much of its standard input.
    StdinTaken {
        /// Which.
        rank: Rank,
        /// Of [`ToAgent::Stdin`].
        bytes: u64,
    },
    /// The answer to [`ToAgent::Examine`].
    Examined(Box<Examination>),
    /// The answer to [`ToAgent::Dial`], in its order.
    Dialed(Vec<Dialed>),
    /// The answer to [`ToAgent::Look`]: workers that live and are stopped by a signal or a debugger.
    Suspended(Vec<Rank>),
    /// The shim did not answer for the length of the lease; it and its workers were killed.
    ShimFrozen,
}

/// What a node found when it prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Where rank 0 will listen, on node 0.
    pub master: Option<Master>,
    /// Where the store listens, on node 0.
    pub store: Option<SocketAddr>,
    /// CPUs that the workers may use.
    pub cpus: u32,
    /// What the user should know about this node.
    pub notes: Vec<String>,
}

/// Where rank 0 will listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Master {
    /// The address at which the other nodes reach it.
    pub addr: String,
    /// The port, which was free.
    pub port: u16,
}

/// A reason why a node cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The exit status it leads to.
    pub status: u8,
    /// Whose trouble it is.
    pub blame: Blame,
}

impl Problem {
    /// A problem of the node and the exit status it leads to.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None, status: status.code(), blame: Blame::Node }
    }

    /// Says that another node would meet it too.
    #[must_use]
    pub fn of_job(self) -> Self {
        Self { blame: Blame::Job, ..self }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A worker that could not become its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStart {
    /// Which.
    pub rank: Rank,
    /// At which step.
    pub step: OpenFailure,
    /// The kernel's reason.
    pub errno: i32,
}

/// The steps of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenFailure {
    /// Pipes, or fork.
    Fork,
    /// Session and descriptors.
    Setup,
    /// The working directory.
    Chdir,
    /// The program itself.
    Exec,
}

/// What a worker says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerNote {
    /// Its group is complete; work begins.
    Ready,
    /// A training step is done.
    Step {
        /// Which, from 1 on.
        step: u64,
        /// How many there will be.
        steps: Option<u64>,
        /// Loss of the step.
        loss: Option<f64>,
        /// Speed of all workers.
        tokens_per_s: Option<f64>,
    },
    /// An operation failed because this rank is gone.
    PeerLost(Rank),
}

/// A process that outlived its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Its pid on the node.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// Where a worker writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

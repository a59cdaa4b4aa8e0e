//! L2: the decision. `JobSpec` → `LaunchPlan`: ranks, environment and argv of every worker, as pure
//! data; the same input gives the same bytes. Reads no clock, no environment, no network.
//!
//! What must be asked of the world stays symbolic ([`EnvValue`], [`MasterAddr`]) until the agents
//! have answered.

use std::ffi::OsString;

use crate::base::{HostName, LocalRank, NodeRank, Rank, Slot};

/// What the user wants, with nothing left to parse.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Hosts that take part, in hostfile order, each with the slots that are used.
    pub nodes: Vec<(HostName, Vec<Slot>)>,
    /// What kind of device a slot is.
    pub accelerator: Accelerator,
    /// What every worker runs.
    pub program: Program,
    /// Arguments of the program, byte for byte.
    pub args: Vec<OsString>,
    /// Where rank 0 of torch listens.
    pub master_addr: MasterAddr,
    /// Its port; `None`: one that is free on node 0.
    pub master_port: Option<u16>,
    /// Variables the user asked for (`--env`), in order; the last wins.
    pub exports: Vec<(OsString, OsString)>,
    /// Name of the job, for `TORCHELASTIC_RUN_ID`.
    pub run_id: String,
}

/// What kind of device a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Processor time; unlimited, never leased.
    Cpu,
    /// An NVIDIA GPU; `CUDA_VISIBLE_DEVICES` is set.
    Cuda,
}

/// What a worker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `python -u SCRIPT --local_rank=N ARGS…`.
    Python {
        /// Script, or the module's name.
        script: OsString,
        /// `-m`.
        module: bool,
        /// Whether `--local_rank=N` is passed.
        local_rank: bool,
        /// The interpreter.
        interpreter: OsString,
    },
    /// The program itself (`--no_python`).
    Exec {
        /// Path, or a name to be searched in PATH.
        program: OsString,
        /// Whether `--local_rank=N` is passed.
        local_rank: bool,
    },
}

/// Where rank 0 of torch listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterAddr {
    /// The user said so, or the job is local.
    Given(String),
    /// Node 0's agent is asked.
    AskNode0,
}

/// What every node will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Where rank 0 of torch listens.
    pub master_addr: MasterAddr,
    /// Its port; `None`: to be found on node 0.
    pub master_port: Option<u16>,
    /// Workers of the job.
    pub world_size: u32,
    /// In rank order.
    pub nodes: Vec<NodePlan>,
}

/// What one node will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Position in the job.
    pub node_rank: NodeRank,
    /// Its name in the hostfile.
    pub host: HostName,
    /// Slots that are used.
    pub slots: Vec<Slot>,
    /// One worker a slot, in slot order.
    pub workers: Vec<WorkerPlan>,
}

/// What one worker will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPlan {
    /// Position in the job.
    pub rank: Rank,
    /// Position on the node.
    pub local_rank: LocalRank,
    /// Its device.
    pub slot: Slot,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The variables that we set, sorted by name.
    pub env: Vec<(OsString, EnvValue)>,
}

/// A value that may have to wait for the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// Known.
    Known(OsString),
    /// The address of rank 0.
    MasterAddr,
    /// The port of rank 0.
    MasterPort,
    /// CPUs of the node we may use / workers of the node, unless the environment already says.
    ThreadShare,
}

/// What the agents found: the values of everything symbolic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
    /// Address of rank 0.
    pub master_addr: String,
    /// Port of rank 0.
    pub master_port: u16,
}

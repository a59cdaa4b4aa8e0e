//! The input of a plan.

use std::ffi::OsString;

use crate::base::{HostName, Slot};
use crate::plan::accelerator::Accelerator;
use crate::plan::workers::export::Export;

/// The port on which rank 0 of torch listens, if the user sets no other and no other process
/// listens there.
pub const MASTER_PORT: u16 = 29500;

/// The job that the user asked for, completely parsed.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Hosts that take part, in hostfile order, each with its slots that are used.
    pub nodes: Vec<(HostName, Vec<Slot>)>,
    /// What kind of device a slot is.
    pub accelerator: Accelerator,
    /// Device names by slot, where a device is not named by its number (`GPU-…`, `MIG-…`); else
    /// empty.
    pub device_names: Vec<String>,
    /// The program of every worker.
    pub program: Program,
    /// Arguments of the program, byte for byte.
    pub args: Vec<OsString>,
    /// The address on which rank 0 of torch listens.
    pub master_addr: MasterAddr,
    /// Its port; `None`: [`MASTER_PORT`], or a free one of node 0.
    pub master_port: Option<u16>,
    /// How often workers are restarted after a failure.
    pub restarts_max: u32,
    /// Variables that every worker gets in addition to remuda's, in order; the last wins.
    pub exports: Vec<Export>,
}

/// The program of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `python -u SCRIPT --local_rank=N ARGS…`.
    Python {
        /// Script, or the module's name.
        script: OsString,
        /// Whether the module is run with `-m`.
        module: bool,
        /// Whether `--local_rank=N` is passed.
        local_rank: bool,
        /// Path of the interpreter, or a name that is searched for in PATH.
        interpreter: OsString,
    },
    /// The program itself (`--no_python`).
    Exec {
        /// Path, or a name that is searched for in PATH.
        program: OsString,
        /// Whether `--local_rank=N` is passed.
        local_rank: bool,
    },
}

/// The address on which rank 0 of torch listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterAddr {
    /// The user set it, or the job is local.
    Given(String),
    /// The agent of node 0 determines it.
    AskNode0,
}

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
    /// Its port.
    pub master_port: RendezvousPort,
    /// How often workers are restarted after a failure.
    pub restarts_max: u32,
    /// The launcher for which the program was written.
    pub conventions: Conventions,
    /// Variables that every worker gets in addition to remuda's, in order; the last wins.
    pub exports: Vec<Export>,
}

/// The port on which rank 0 of torch listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RendezvousPort {
    /// This port and no other.
    Given(u16),
    /// [`MASTER_PORT`] if it is free, else any free one of node 0.
    Usual,
    /// Any free port of node 0, so that jobs that start at the same time do not collide.
    Free,
}

impl RendezvousPort {
    /// The port if it is known before the start.
    pub fn given(self) -> Option<u16> {
        match self {
            Self::Given(port) => Some(port),
            Self::Usual | Self::Free => None,
        }
    }

    /// The port of an option, else the usual one.
    pub fn or_usual(given: Option<u16>) -> Self {
        given.map_or(Self::Usual, Self::Given)
    }
}

/// The launcher for which a program was written: it determines the variables of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conventions {
    /// DeepSpeed's launcher; torchrun's variables are set too.
    DeepSpeed,
    /// torchrun, and nothing that it does not do.
    Torchrun(TorchrunConventions),
    /// None: one process that forms no group, and sees no rank.
    OneProcess,
}

/// What the options of torchrun say about the variables of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchrunConventions {
    /// Value of `ROLE_NAME`.
    pub role: String,
    /// Value of `TORCHELASTIC_RUN_ID`; `None`: the name of the job.
    pub run_id: Option<String>,
    /// Value of `TORCHELASTIC_SIGNALS_TO_HANDLE`.
    pub signals: String,
    /// The devices among which each worker gets one, as its only one, with 0 as its `LOCAL_RANK`;
    /// `None`: every worker sees the devices of the environment.
    pub virtual_devices: Option<Vec<String>>,
}

/// The program of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `python -u SCRIPT --local_rank=N ARGS…`; torchrun writes `--local-rank=N`.
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

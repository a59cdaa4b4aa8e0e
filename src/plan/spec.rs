//! What goes into a plan.

use std::ffi::OsString;

use crate::base::{HostName, Slot, env_vars};

use super::export::Export;

/// Where rank 0 of torch listens if nobody says otherwise and nobody else does.
pub const MASTER_PORT: u16 = 29500;

/// What the user wants, with nothing left to parse.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Hosts that take part, in hostfile order, each with the slots that are used.
    pub nodes: Vec<(HostName, Vec<Slot>)>,
    /// What kind of device a slot is.
    pub accelerator: Accelerator,
    /// What devices are called, by slot, where a number is not their name (`GPU-…`, `MIG-…`); else
    /// empty.
    pub device_names: Vec<String>,
    /// What every worker runs.
    pub program: Program,
    /// Arguments of the program, byte for byte.
    pub args: Vec<OsString>,
    /// Where rank 0 of torch listens.
    pub master_addr: MasterAddr,
    /// Its port; `None`: [`MASTER_PORT`], or one that is free on node 0.
    pub master_port: Option<u16>,
    /// How often workers are started anew after a failure.
    pub restarts_max: u32,
    /// Variables that every worker gets beside ours, in order; the last wins.
    pub exports: Vec<Export>,
}

/// What kind of device a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Processor time; unlimited, never claimed.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// An AMD GPU.
    Rocm,
    /// An Intel GPU.
    Xpu,
    /// An Ascend NPU.
    Npu,
    /// An Apple GPU.
    Mps,
    /// An Intel Gaudi.
    Hpu,
    /// A Cambricon MLU.
    Mlu,
    /// A Tecorigin SDAA.
    Sdaa,
    /// A Biren SUPA.
    Supa,
    /// A Kunlunxin XPU.
    Klxpu,
}

impl Accelerator {
    /// The variables that tell a program which devices it may use. For CPU slots and some
    /// others DeepSpeed sets the variable of CUDA; HIP reads both of its own.
    pub fn visible_devices(self) -> &'static [&'static str] {
        match self {
            Self::Cpu | Self::Cuda | Self::Mps | Self::Hpu | Self::Klxpu => {
                &[env_vars::CUDA_VISIBLE_DEVICES]
            }
            Self::Rocm => &[env_vars::HIP_VISIBLE_DEVICES, env_vars::CUDA_VISIBLE_DEVICES],
            Self::Xpu => &[env_vars::ZE_AFFINITY_MASK],
            Self::Npu => &[env_vars::ASCEND_RT_VISIBLE_DEVICES],
            Self::Mlu => &[env_vars::MLU_VISIBLE_DEVICES],
            Self::Sdaa => &[env_vars::SDAA_VISIBLE_DEVICES],
            Self::Supa => &[env_vars::SUPA_VISIBLE_DEVICES],
        }
    }
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

//! Backend of a benchmark: host memory, NCCL, or GPU memory staged through the host.

use std::fmt;

use crate::runtime::ReduceOrder;

/// Backend, as requested on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Data in host memory, moved through shared memory and TCP.
    #[default]
    Host,
    /// Data in GPU memory, moved by NCCL; an error where NCCL cannot be used.
    Nccl,
    /// Data in GPU memory, staged through host memory.
    Staged,
}

impl Backend {
    /// All backends.
    pub const ALL: [Self; 3] = [Self::Host, Self::Nccl, Self::Staged];

    /// Returns the name on the command line, such as `host`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Nccl => "nccl",
            Self::Staged => "staged",
        }
    }

    /// Returns the order of reductions if `--order` is not given.
    pub fn default_order(self) -> ReduceOrder {
        match self {
            Self::Host | Self::Staged => ReduceOrder::Canonical,
            Self::Nccl => ReduceOrder::Any,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

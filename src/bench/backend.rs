//! Backend of a benchmark: host memory, NCCL, or GPUs by way of the host.

use std::fmt;

use crate::runtime::{Error, Group, ReduceOrder};

#[cfg(feature = "nccl")]
use super::device::Devices;

/// Backend, as requested on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Data in host memory, moved through shared memory and TCP.
    #[default]
    Host,
    /// Data in GPU memory, moved by NCCL; an error where NCCL cannot be used.
    Nccl,
    /// Data in GPU memory, moved by way of the host.
    Staged,
}

impl Backend {
    /// All backends.
    pub const ALL: [Self; 3] = [Self::Host, Self::Nccl, Self::Staged];

    /// Name on the command line, such as `host`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Nccl => "nccl",
            Self::Staged => "staged",
        }
    }

    /// Order of reductions where `--order` is not given.
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

/// A backend that is connected.
pub enum OpenBackend<'a> {
    /// The group itself.
    Host(&'a Group),
    /// Connected devices.
    #[cfg(feature = "nccl")]
    Devices(Devices<'a>),
}

impl<'a> OpenBackend<'a> {
    /// Connects the backend; all ranks call it. `order` applies to groups of devices, which have an
    /// order of their own.
    pub fn open(
        group: &'a Group,
        backend: Backend,
        #[cfg_attr(not(feature = "nccl"), expect(unused_variables, reason = "it is for devices"))]
        order: Option<ReduceOrder>,
    ) -> Result<Self, Error> {
        match backend {
            Backend::Host => Ok(Self::Host(group)),
            #[cfg(feature = "nccl")]
            Backend::Nccl | Backend::Staged => {
                Devices::open(group, backend, order).map(Self::Devices)
            }
            #[cfg(not(feature = "nccl"))]
            Backend::Nccl | Backend::Staged => Err(Error::BadArgument(format!(
                "this build has no backend {backend}; build remuda with the feature `nccl`"
            ))),
        }
    }

    /// External library that moves the data, if there is one: its version and its path.
    pub fn library(&self) -> Option<String> {
        match self {
            Self::Host(_) => None,
            #[cfg(feature = "nccl")]
            Self::Devices(devices) => devices.library(),
        }
    }

    /// The group of the ranks that take part.
    pub fn group(&self) -> &'a Group {
        match self {
            Self::Host(group) => group,
            #[cfg(feature = "nccl")]
            Self::Devices(devices) => devices.group(),
        }
    }
}

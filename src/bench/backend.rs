//! Backend of a benchmark: host memory, NCCL, or GPU memory staged through the host.

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

/// Connected backend.
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
        #[cfg_attr(
            not(feature = "nccl"),
            expect(unused_variables, reason = "only devices use it")
        )]
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

    /// Returns version and path of the external library that moves the data, if there is one.
    pub fn library(&self) -> Option<String> {
        match self {
            Self::Host(_) => None,
            #[cfg(feature = "nccl")]
            Self::Devices(devices) => devices.library(),
        }
    }

    /// Returns the group of the participating ranks.
    pub fn group(&self) -> &'a Group {
        match self {
            Self::Host(group) => group,
            #[cfg(feature = "nccl")]
            Self::Devices(devices) => devices.group(),
        }
    }
}

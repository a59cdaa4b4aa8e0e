//! What moves the numbers that are measured.

use std::fmt;

use crate::runtime::{Error, Group, ReduceOrder};

#[cfg(feature = "nccl")]
use super::device::Devices;

/// As it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Numbers of the host: shared memory and TCP.
    #[default]
    Host,
    /// Numbers on GPUs, moved by NCCL; where that cannot be, nothing is measured.
    Nccl,
    /// Numbers on GPUs, by way of the host.
    Staged,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Host, Self::Nccl, Self::Staged];

    /// `host`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Nccl => "nccl",
            Self::Staged => "staged",
        }
    }

    /// In which order numbers are combined where nobody says it.
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

/// A backend that is ready.
pub enum Opened<'a> {
    /// The group is all that it takes.
    Host(&'a Group),
    /// Devices that are connected.
    #[cfg(feature = "nccl")]
    Devices(Devices<'a>),
}

impl<'a> Opened<'a> {
    /// Connects what has to be connected; all ranks call it. `order` is for devices, whose groups have
    /// orders of their own.
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
                "backend {backend} is not in this build; build it with the feature `nccl`"
            ))),
        }
    }

    /// The library that moves the numbers, if it is not ours: its version and its file.
    pub fn library(&self) -> Option<String> {
        match self {
            Self::Host(_) => None,
            #[cfg(feature = "nccl")]
            Self::Devices(devices) => devices.library(),
        }
    }

    /// The ranks.
    pub fn group(&self) -> &'a Group {
        match self {
            Self::Host(group) => group,
            #[cfg(feature = "nccl")]
            Self::Devices(devices) => devices.group(),
        }
    }
}

//! Backend that is connected with those of the other ranks.

use super::backend::Backend;
#[cfg(feature = "nccl")]
use super::device::Devices;
use crate::runtime::{Error, Group, ReduceOrder};

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

    /// Returns why transfers are slower than they could be, if that is known.
    pub fn slow_because(&self) -> Option<String> {
        match self {
            Self::Host(_) => None,
            #[cfg(feature = "nccl")]
            Self::Devices(devices) => devices.slow_because(),
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

//! Device memory that is registered with NCCL.

use std::ops::{Deref, DerefMut};

use cudarc::driver::CudaSlice;

use super::{ActiveBackend, DeviceElement, DeviceGroup};
use crate::runtime::error::{Error, Result};
use crate::runtime::nccl::{BufferLease, Registered};

/// Device memory that NCCL can read and write without a copy, if the connection between the devices
/// allows it. Created by [`DeviceGroup::register`]; dereferences to the slice.
pub struct RegisteredSlice<'a, T> {
    devices: &'a DeviceGroup,
    slice: CudaSlice<T>,
    /// `None` if the backend has no registration.
    registered: Option<Registered>,
}

impl<'a, T: DeviceElement> RegisteredSlice<'a, T> {
    pub(super) fn new(devices: &'a DeviceGroup, mut slice: CudaSlice<T>) -> Result<Self> {
        let stream = devices.stream.clone();
        let registered = match &mut *devices.lock() {
            Some(ActiveBackend::Nccl(nccl)) => {
                let memory = BufferLease::to_write(&mut slice, &stream);
                let registered = nccl.communicator.register(&memory);
                registered.map_err(|error| Error::Device(error.to_string()))?
            }
            Some(ActiveBackend::Staged(_)) | None => None,
        };
        Ok(Self { devices, slice, registered })
    }
}

impl<'a, T> RegisteredSlice<'a, T> {
    /// A slice that is not registered with NCCL.
    #[cfg(feature = "cli")]
    pub(crate) fn unregistered(devices: &'a DeviceGroup, slice: CudaSlice<T>) -> Self {
        Self { devices, slice, registered: None }
    }
}

impl<T> Deref for RegisteredSlice<'_, T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> DerefMut for RegisteredSlice<'_, T> {
    fn deref_mut(&mut self) -> &mut CudaSlice<T> {
        &mut self.slice
    }
}

impl<T> Drop for RegisteredSlice<'_, T> {
    fn drop(&mut self) {
        // A failed communicator no longer exists, so the memory is not registered any more.
        if let (Some(registered), Some(ActiveBackend::Nccl(nccl))) =
            (self.registered.take(), &mut *self.devices.lock())
        {
            nccl.communicator.deregister(registered);
        }
    }
}

//! Device memory that is registered with NCCL.

use std::ops::{Deref, DerefMut};

use cudarc::driver::CudaSlice;

use crate::cuda::device::DeviceAddress;
use crate::cuda::nccl::Registered;
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::connection::DeviceConnection;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::operand::{DeviceOperand, written};
use crate::runtime::error::{Error, Result};

/// Device memory that NCCL can read and write without a copy, if the connection between the connection
/// allows it. Created by [`DeviceGroup::register`](super::group::DeviceGroup::register); dereferences to the slice.
pub struct RegisteredSlice<'a, T> {
    connection: &'a DeviceConnection,
    slice: CudaSlice<T>,
    /// `None` if the backend has no registration.
    registered: Option<Registered>,
}

impl<'a, T: DeviceElement> RegisteredSlice<'a, T> {
    pub(super) fn new(connection: &'a DeviceConnection, mut slice: CudaSlice<T>) -> Result<Self> {
        let stream = connection.stream.clone();
        let registered = match &mut *connection.lock() {
            Some(ActiveBackend::Nccl(nccl)) => {
                let mut memory = written(&mut slice);
                let lease = memory.lease(&stream);
                let at = DeviceAddress(lease.address());
                let registered = nccl.communicator.register_at(at, lease.bytes());
                registered.map_err(|error| Error::Device(error.to_string()))?
            }
            Some(ActiveBackend::Staged(_)) | None => None,
        };
        Ok(Self { connection, slice, registered })
    }
}

impl<'a, T> RegisteredSlice<'a, T> {
    /// A slice that is not registered with NCCL.
    #[cfg(feature = "cli")]
    pub(super) fn unregistered(connection: &'a DeviceConnection, slice: CudaSlice<T>) -> Self {
        Self { connection, slice, registered: None }
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
            (self.registered.take(), &mut *self.connection.lock())
        {
            nccl.communicator.deregister(registered);
        }
    }
}

//! Connected backend of a group of devices.

use crate::runtime::comm::device::nccl::Nccl;
use crate::runtime::comm::device::staged::Staged;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};

/// Connected backend.
pub(super) enum ActiveBackend {
    Nccl(Nccl),
    Staged(Staged),
}

/// Enqueues one operation on the backend.
pub(super) type BackendOperation<'a> =
    dyn FnMut(&mut ActiveBackend, &DeviceDeadline<'_>) -> Result<(), OperationFailure> + 'a;

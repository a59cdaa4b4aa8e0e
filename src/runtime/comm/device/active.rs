//! Connected backend of a group of devices.

use crate::runtime::comm::device::nccl::Nccl;
use crate::runtime::comm::device::staged::Staged;

/// Connected backend.
pub(super) enum ActiveBackend {
    Nccl(Nccl),
    Staged(Staged),
}

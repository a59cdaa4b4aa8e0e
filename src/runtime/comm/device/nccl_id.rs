//! The identifier of an NCCL communicator, shared by the ranks of a group.

use crate::cuda::nccl::{NcclLibrary, UNIQUE_ID_BYTES, UniqueId};
use crate::runtime::comm::group::Group;
use crate::runtime::error::{Error, Result};

/// Creates the id of a new communicator on rank 0 and sends it to every rank of the group; all ranks must
/// call it. It is for programs with their own bindings of NCCL;
/// [`DeviceGroup`](crate::runtime::device::DeviceGroup) calls it itself.
pub fn share_id(group: &Group, library: &NcclLibrary) -> Result<UniqueId> {
    let created = (group.rank() == 0).then(|| library.unique_id());
    let mut message = [0u8; 1 + UNIQUE_ID_BYTES];
    if let Some(Ok(id)) = &created {
        message[0] = 1;
        message[1..].copy_from_slice(&id.0);
    }
    group.broadcast(&mut message, 0)?;
    let [is_valid, id @ ..] = message;
    match created {
        Some(Err(error)) => Err(Error::Device(error.to_string())),
        _ if is_valid == 1 => Ok(UniqueId(id)),
        _ => Err(Error::Device(format!("NCCL of rank {} failed", group.inner.roster.job_rank(0)))),
    }
}

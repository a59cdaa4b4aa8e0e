//! The identifier of an NCCL communicator, shared by the ranks of a group.

use crate::base::Rank;
use crate::cuda::nccl::{NcclLibrary, UNIQUE_ID_BYTES, UniqueId};
use crate::runtime::comm::group::Group;
use crate::runtime::error::{Error, Result};

/// Creates the id of a new communicator on rank 0 and sends it to every rank of the group; all ranks must
/// call it. It is for programs with their own bindings of NCCL;
/// [`DeviceGroup`](crate::runtime::device::DeviceGroup) calls it itself.
pub fn share_id(group: &Group, library: &NcclLibrary) -> Result<UniqueId> {
    let shared = share_created_id(group, || library.unique_id())?;
    shared.map_err(|absent| match absent {
        AbsentId::NotCreated(error) => Error::Device(error.to_string()),
        AbsentId::NotSent(first) => Error::Device(format!("NCCL of rank {first} failed")),
    })
}

/// Why the ranks have no identifier in common.
pub(super) enum AbsentId<E> {
    /// This rank could not create it.
    NotCreated(E),
    /// The first rank, with this number in the job, could not create it.
    NotSent(Rank),
}

/// Creates an identifier on rank 0 and sends it to every rank of the group. The outer error is the group's.
pub(super) fn share_created_id<E>(
    group: &Group,
    create: impl FnOnce() -> std::result::Result<UniqueId, E>,
) -> Result<std::result::Result<UniqueId, AbsentId<E>>> {
    let created = (group.rank() == 0).then(create);
    let mut message = [0u8; 1 + UNIQUE_ID_BYTES];
    if let Some(Ok(id)) = &created {
        message[0] = 1;
        message[1..].copy_from_slice(&id.0);
    }
    group.broadcast(&mut message, 0)?;
    let [is_valid, id @ ..] = message;
    Ok(match created {
        Some(Err(error)) => Err(AbsentId::NotCreated(error)),
        _ if is_valid == 1 => Ok(UniqueId(id)),
        _ => Err(AbsentId::NotSent(group.inner.roster.job_rank(0))),
    })
}

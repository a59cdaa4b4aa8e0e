//! NCCL, opened at run time: communicators, their operations and errors.
//!
//! [`runtime::library`](crate::runtime::library) searches and opens it. Communicators are nonblocking,
//! so every wait has a deadline and ends when a peer is lost.
//!
//! | file | contents |
//! |---|---|
//! | `ffi` | functions of the library |
//! | `ffi_communicator` | communicators and their operations |
//! | `ras` | NCCL's status of a job that hangs |
//! | `error` | errors |

mod error;
mod ffi;
mod ffi_communicator;
pub mod ras;

pub use error::NcclError;
#[cfg(test)]
pub(crate) use ffi::NCCL;
pub use ffi::{NcclLibrary, UNIQUE_ID_BYTES, UniqueId, Version};
pub(crate) use ffi_communicator::{BufferLease, CommProgress, Communicator, PeerSlice, Registered};

use crate::runtime::error::{Error, Result};
use crate::runtime::group::Group;

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

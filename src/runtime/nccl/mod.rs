//! NCCL, opened at run time where it is found.
//!
//! The bindings of the [library](crate::runtime::library) are written by hand. Communicators are
//! nonblocking, so every wait has a deadline and ends when a peer is lost.
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
    let made = (group.rank() == 0).then(|| library.unique_id());
    let mut words = [0u8; 1 + UNIQUE_ID_BYTES];
    if let Some(Ok(id)) = &made {
        words[0] = 1;
        words[1..].copy_from_slice(&id.0);
    }
    group.broadcast(&mut words, 0)?;
    let [is_made, id @ ..] = words;
    match made {
        Some(Err(error)) => Err(Error::Device(error.to_string())),
        _ if is_made == 1 => Ok(UniqueId(id)),
        _ => Err(Error::Device(format!("NCCL of rank {} failed", group.inner.roster.name(0)))),
    }
}

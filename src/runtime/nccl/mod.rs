//! NCCL, opened at run time where it is found.
//!
//! The [library](crate::runtime::library) is bound by hand. Communicators never block, so that every
//! wait of ours has a deadline and hears of lost peers.
//!
//! | file | what for |
//! |---|---|
//! | `ffi` | its functions, and the library that holds them |
//! | `ffi_communicator` | ranks that are connected, and what they can begin together |
//! | `ras` | what NCCL knows about a job that stands still |
//! | `error` | what can go wrong |

mod error;
mod ffi;
mod ffi_communicator;
pub mod ras;

pub use error::NcclError;
#[cfg(test)]
pub(crate) use ffi::NCCL;
pub use ffi::{Library, UNIQUE_ID_BYTES, UniqueId, Version};
pub(crate) use ffi_communicator::{Communicator, Held, Piece, Progress, Registered};

use crate::runtime::error::{Error, Result};
use crate::runtime::group::Group;

/// The id of a new communicator, made by rank 0 and told to every rank of a group: all of them call
/// it. For whoever binds NCCL too; [`DeviceGroup`](crate::runtime::device::DeviceGroup) needs no help.
pub fn share_id(group: &Group, library: &Library) -> Result<UniqueId> {
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

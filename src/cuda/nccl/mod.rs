//! NCCL: communicators, their operations and errors.
//!
//! [`library`](super::library) searches and opens it. Communicators are nonblocking, so every wait has a
//! deadline and ends when a peer is lost.
//!
//! | file | contents |
//! |---|---|
//! | `ffi` | functions of the library |
//! | `ffi_communicator` | communicators and their operations on memory that a stream may use |
//! | `ffi_addressed` | their operations on memory that is named by its address |
//! | `ffi_memory` | memory that NCCL allocates; registration of memory |
//! | `ras` | NCCL's status of a job that hangs |
//! | `types`, `version`, `error` | element types and reductions; version of the library; errors |

mod error;
mod ffi;
mod ffi_addressed;
mod ffi_communicator;
mod ffi_memory;
pub mod ras;
mod types;
mod version;

pub use error::NcclError;
#[cfg(test)]
pub(crate) use ffi::NCCL;
pub use ffi::{NcclLibrary, UNIQUE_ID_BYTES, UniqueId};
pub(crate) use ffi_communicator::{BufferLease, CommProgress, Communicator, PeerSlice};
pub(super) use ffi_memory::NcclMemory;
pub(crate) use ffi_memory::Registered;
pub(crate) use types::{DataType, Reduction};
pub use version::Version;

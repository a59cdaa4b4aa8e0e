//! C interface of the data plane (layer L5, feature `capi`): `remuda.h` beside this file documents it.
//!
//! It is built as a library of its own, so that the executable is linked once:
//!
//! ```console
//! $ cargo rustc --release --lib --crate-type cdylib --no-default-features --features capi
//! ```
//!
//! Functions of the interface check their arguments, never let a panic through, and return a status; the message
//! of the last error is kept for each thread. They call [`runtime`](crate::runtime) and nothing else.
//!
//! | file | contents |
//! |---|---|
//! | `call_error` | kinds of errors, their hints, the last error of a thread |
//! | `started_work` | operations in flight of any kind |
//! | `ffi_arguments` | checks of pointers and codes; the guard around every call |
//! | `ffi_group`, `ffi_meet` | groups, aborts, notes; meeting without the launcher |
//! | `ffi_collective`, `ffi_message` | operations |
//! | `ffi_device` | operations on memory of GPUs, with the feature `nccl` |
//! | `ffi_work`, `ffi_memory`, `ffi_error` | handles, shared memory, the last error |

mod call_error;
mod ffi_arguments;
mod ffi_collective;
#[cfg(feature = "nccl")]
mod ffi_device;
mod ffi_error;
mod ffi_group;
mod ffi_meet;
mod ffi_memory;
mod ffi_message;
mod ffi_work;
#[cfg(test)]
mod header;
mod started_work;

pub use call_error::CallErrorKind;
pub use ffi_arguments::{ABI_VERSION, CallOptions};
pub use ffi_collective::*;
#[cfg(feature = "nccl")]
pub use ffi_device::*;
pub use ffi_error::*;
pub use ffi_group::*;
pub use ffi_meet::*;
pub use ffi_memory::*;
pub use ffi_message::*;
pub use ffi_work::*;
pub use started_work::StartedWork;

//! NVIDIA's libraries, which are opened at run time from the place where a Python worker of the same
//! environment finds them.
//!
//! The bindings are written by hand: result codes are plain numbers, because a later version can return
//! codes that the current header does not define, and the error for a missing library lists the
//! directories that were searched.
//!
//! Two libraries are not opened here. The CUDA driver (by `cudarc`) and NVML (by `nvml-wrapper`, in
//! the module `inventory`) belong to the kernel module of the machine: there is one of each, where the
//! system's loader finds it, and none in a Python environment.
//!
//! | file | contents |
//! |---|---|
//! | `spec` | name, files and package of a library |
//! | `search` | search path: Python environments, then the system's loader |
//! | `ffi` | opening of a library and look-up of its functions |
//! | `error` | errors |

mod error;
mod ffi;
mod search;
mod spec;

pub use crate::cuda::library::error::LibraryError;
pub(crate) use crate::cuda::library::ffi::FunctionTable;
pub(crate) use crate::cuda::library::ffi::OpenLibrary;
pub(crate) use crate::cuda::library::ffi::copy_c_string;
pub(crate) use crate::cuda::library::ffi::functions;
pub(crate) use crate::cuda::library::ffi::open_sibling;
pub use crate::cuda::library::spec::LibrarySpec;

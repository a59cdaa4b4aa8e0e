//! NVRTC: compilation of CUDA source at run time.
//!
//! Compiling needs neither a GPU nor a driver.
//!
//! | file | contents |
//! |---|---|
//! | `ffi` | functions of the library |
//! | `error` | errors |

mod architecture;
mod error;
mod ffi;

pub use crate::cuda::nvrtc::error::NvrtcError;
pub use crate::cuda::nvrtc::ffi::Compiled;
pub use crate::cuda::nvrtc::ffi::Compiler;
pub use architecture::Architecture;

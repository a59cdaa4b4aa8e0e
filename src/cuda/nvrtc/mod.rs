//! NVRTC: compilation of CUDA source at run time.
//!
//! Compiling needs neither a GPU nor a driver.
//!
//! | file | contents |
//! |---|---|
//! | `ffi` | functions of the library |
//! | `error` | errors |

mod error;
mod ffi;

use std::fmt;

pub use crate::cuda::nvrtc::error::NvrtcError;
pub use crate::cuda::nvrtc::ffi::Compiled;
pub use crate::cuda::nvrtc::ffi::Compiler;

/// Target architecture, such as `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Architecture {
    /// Major compute capability.
    pub major: u32,
    /// Minor compute capability.
    pub minor: u32,
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

//! NVRTC: source in CUDA becomes code of a device, on the machine that has the device.
//!
//! Compiling needs neither a GPU nor a driver.
//!
//! | file | what for |
//! |---|---|
//! | `ffi` | its functions, and the library that holds them |
//! | `error` | what can go wrong |

mod error;
mod ffi;

use std::fmt;

pub use self::error::NvrtcError;
pub use self::ffi::{Compiled, Compiler};

/// What code is made for: `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Architecture {
    /// Compute capability, before the point.
    pub major: u32,
    /// Behind it.
    pub minor: u32,
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

//! Errors of NVRTC.

use crate::runtime::library::LibraryError;

/// NVRTC cannot be used, or refuses a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvrtcError {
    /// There is none that can be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A call failed.
    #[error("{function} failed: {meaning}")]
    Call {
        /// Which function.
        function: &'static str,
        /// NVRTC's number for what happened.
        code: i32,
        /// NVRTC's words for the number.
        meaning: String,
    },
    /// The compiler does not take the source, or not for this device.
    #[error("NVRTC {version} refuses `{name}`: {log}")]
    Refused {
        /// Major and minor version.
        version: String,
        /// What the source is called.
        name: String,
        /// What the compiler said.
        log: String,
    },
}

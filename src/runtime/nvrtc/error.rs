//! Errors of NVRTC.

use crate::runtime::library::LibraryError;

/// Error of NVRTC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvrtcError {
    /// The library cannot be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A call failed.
    #[error("{function} failed: {meaning}")]
    Call {
        /// Name of the function.
        function: &'static str,
        /// Result code of NVRTC.
        code: i32,
        /// NVRTC's description of the code.
        meaning: String,
    },
    /// The compiler refused the source.
    #[error("NVRTC {version} refuses `{name}`: {log}")]
    Refused {
        /// Major and minor version of the compute capability.
        version: String,
        /// Name of the source.
        name: String,
        /// Output of the compiler.
        log: String,
    },
}

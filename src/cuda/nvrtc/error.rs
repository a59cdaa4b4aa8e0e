//! Errors of NVRTC.

use crate::cuda::library::LibraryError;

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
    /// The source does not compile.
    #[error("NVRTC {version} cannot compile `{name}`: {log}")]
    Refused {
        /// Version of NVRTC, such as `13.0`.
        version: String,
        /// Name of the source.
        name: String,
        /// Output of the compiler.
        log: String,
    },
}

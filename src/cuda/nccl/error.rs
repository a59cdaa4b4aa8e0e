//! Errors of NCCL.

use std::path::PathBuf;

use crate::cuda::library::LibraryError;
use crate::cuda::nccl::version::Version;

/// Error of NCCL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// The library cannot be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The library is too old.
    #[error("NCCL {version} (`{}`) is too old: {} or newer is needed", .path.display(), Version::LEAST)]
    TooOld {
        /// File of the library.
        path: PathBuf,
        /// Version of the library.
        version: Version,
    },
    /// A call failed.
    #[error("{function} failed: {meaning}{}", .detail.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Call {
        /// Name of the function.
        function: &'static str,
        /// Result code of NCCL.
        code: i32,
        /// NCCL's description of the code.
        meaning: String,
        /// NCCL's last error message, if there is one.
        detail: Option<String>,
    },
}

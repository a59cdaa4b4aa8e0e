//! Errors of NCCL.

use std::path::PathBuf;

use super::ffi::Version;
use crate::runtime::library::LibraryError;

/// NCCL cannot be used, or an operation of it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// There is none that can be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The library is older than the functions that we need.
    #[error("NCCL {version} (`{}`) is too old: {} or newer is needed", .path.display(), Version::LEAST)]
    TooOld {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// A call failed.
    #[error("{function} failed: {meaning}{}", .detail.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Call {
        /// Which function.
        function: &'static str,
        /// NCCL's number for what happened.
        code: i32,
        /// NCCL's words for the number.
        meaning: String,
        /// NCCL's words for this time, where it has any.
        detail: Option<String>,
    },
}

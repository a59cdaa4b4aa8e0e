//! What can go wrong between us and NCCL.

use std::path::PathBuf;

use super::ffi::Version;
use crate::base::env_vars::REMUDA_NCCL_LIBRARY;

/// NCCL cannot be used, or an operation of it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// No file of that name anywhere.
    #[error(
        "cannot find NCCL: there is no `libnccl.so.2` in {}; install it (`pip install nvidia-nccl-cu13`), or name the file in {REMUDA_NCCL_LIBRARY}",
        show(.searched)
    )]
    NotFound {
        /// Directories in which it was looked for, beside those of the system's loader.
        searched: Vec<PathBuf>,
    },
    /// There are files, and the loader takes none of them.
    #[error("cannot load NCCL: {}", .0.iter().map(|(path, why)| format!("`{}`: {why}", path.display())).collect::<Vec<_>>().join("; "))]
    NotLoadable(
        /// Every file, and what the loader said.
        Vec<(PathBuf, String)>,
    ),
    /// The library has no such function.
    #[error("`{}` is no NCCL that we can use: it lacks `{symbol}`", .path.display())]
    MissingSymbol {
        /// The library.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
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

const SHOWN_MAX: usize = 6;

fn show(paths: &[PathBuf]) -> String {
    let mut shown: Vec<String> =
        paths.iter().take(SHOWN_MAX).map(|path| format!("`{}`", path.display())).collect();
    if let Some(more) = paths.len().checked_sub(SHOWN_MAX).filter(|more| 0 < *more) {
        shown.push(format!("{more} more directories"));
    }
    shown.push("the directories of the system's loader".to_owned());
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_told_with_places_and_cures() {
        let searched = ["/venv/lib", "/usr/lib"].map(PathBuf::from).to_vec();
        let expect = "cannot find NCCL: there is no `libnccl.so.2` in `/venv/lib`, `/usr/lib`, the \
                      directories of the system's loader; install it (`pip install \
                      nvidia-nccl-cu13`), or name the file in REMUDA_NCCL_LIBRARY";
        assert_eq!(NcclError::NotFound { searched }.to_string(), expect);
    }
}

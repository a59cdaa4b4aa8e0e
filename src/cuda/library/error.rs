//! Error of opening one of NVIDIA's libraries.

use std::path::PathBuf;

use crate::cuda::library::spec::LibrarySpec;

/// Error of opening a library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// No file with this name was found.
    #[error(
        "cannot find {}: there is no `{}` in {}; install it (`pip install {}`), or name the file in {}",
        .wanted.name, .wanted.files[0], show(.searched), .wanted.package, .wanted.variable
    )]
    NotFound {
        /// Library that was searched for.
        wanted: &'static LibrarySpec,
        /// Directories that were searched, in addition to those of the system's loader.
        searched: Vec<PathBuf>,
    },
    /// Files were found, and the loader could not open any of them.
    #[error("cannot load {}: {}", .wanted.name, .refused.iter().map(|(path, why)| format!("`{}`: {why}", path.display())).collect::<Vec<_>>().join("; "))]
    NotLoadable {
        /// Library that was searched for.
        wanted: &'static LibrarySpec,
        /// Every file with the loader's error.
        refused: Vec<(PathBuf, String)>,
    },
    /// The library lacks a function.
    #[error("`{}` is not a usable {}: it has no function `{symbol}`", .path.display(), .wanted.name)]
    MissingSymbol {
        /// Library that was searched for.
        wanted: &'static LibrarySpec,
        /// File of the library.
        path: PathBuf,
        /// Name of the function.
        symbol: &'static str,
    },
}

/// Largest number of directories that the message lists.
const SHOWN_MAX: usize = 6;

fn show(paths: &[PathBuf]) -> String {
    let mut shown: Vec<String> =
        paths.iter().take(SHOWN_MAX).map(|path| format!("`{}`", path.display())).collect();
    if let Some(rest) = paths.len().checked_sub(SHOWN_MAX).filter(|rest| 0 < *rest) {
        shown.push(format!("{rest} more directories"));
    }
    shown.push("the directories of the system's loader".to_owned());
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_lists_directories_and_remedies() {
        let searched = ["/venv/lib", "/usr/lib"].map(PathBuf::from).to_vec();
        let expect = "cannot find NCCL: there is no `libnccl.so.2` in `/venv/lib`, `/usr/lib`, the \
                      directories of the system's loader; install it (`pip install \
                      nvidia-nccl-cu13`), or name the file in REMUDA_NCCL_LIBRARY";
        let wanted = &crate::cuda::nccl::NCCL;
        assert_eq!(LibraryError::NotFound { wanted, searched }.to_string(), expect);
    }
}

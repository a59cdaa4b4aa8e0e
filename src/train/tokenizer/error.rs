//! Why a vocabulary cannot be used.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::shell::quoted;
use crate::base::show_io_error;

/// Error of a vocabulary.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// A file cannot be read.
    #[error("cannot read vocabulary `{}`: {}", path.display(), show_io_error(source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A directory has no vocabulary.
    #[error(
        "no vocabulary in `{}`: it has no `tokenizer.json`, no `vocab.json` with `merges.txt`, and no \
         `.tiktoken` file",
        path.display()
    )]
    NotFound {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A directory has several vocabularies.
    #[error(
        "`{}` has several vocabularies: `{}` and `{}`",
        path.display(),
        first.display(),
        second.display()
    )]
    Several {
        /// Path of the directory.
        path: PathBuf,
        /// Path of the first vocabulary.
        first: PathBuf,
        /// Path of the second vocabulary.
        second: PathBuf,
    },
    /// A file has other content than its format says.
    #[error("vocabulary `{}{}` is invalid: {reason}", path.display(), suffix(*line))]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Line of the problem, from 1, if it has one.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// A tokenizer of another kind than byte-level BPE.
    #[error("vocabulary `{}` is not supported: {found}", path.display())]
    Unsupported {
        /// Path of the file.
        path: PathBuf,
        /// What the file asks for.
        found: String,
    },
}

fn suffix(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(":{line}"))
}

impl VocabularyError {
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    pub(super) fn malformed(
        path: &Path,
        line: impl Into<Option<usize>>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Malformed { path: path.to_owned(), line: line.into(), reason: reason.into() }
    }

    pub(super) fn unsupported(path: &Path, found: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), found: found.into() }
    }

    /// Error of a text that is not JSON, or JSON of other types.
    pub(super) fn json(path: &Path, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let reason = text.split(" at line ").next().unwrap_or_default().to_owned();
        Self::malformed(path, Some(error.line()).filter(|line| 0 < *line), reason)
    }

    /// Returns what the user can do about it.
    pub fn help(&self) -> Cow<'static, str> {
        let fixed = match self {
            Self::Several { first, .. } => {
                return format!("name one of them: `--vocab {}`", quoted(first)).into();
            }
            Self::Read { .. } | Self::NotFound { .. } => {
                "name a `tokenizer.json`, a `.tiktoken` file, or a directory with `vocab.json` and \
                 `merges.txt`"
            }
            Self::Malformed { .. } => "copy the file again from where the model was published",
            Self::Unsupported { .. } => {
                "only byte-level BPE with the pre-tokenizer of GPT-2, GPT-4 or Llama 3 is supported"
            }
        };
        fixed.into()
    }
}

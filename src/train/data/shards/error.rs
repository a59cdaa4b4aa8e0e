//! Why a shard of tokens cannot be read or written.

use std::io;
use std::path::PathBuf;

use super::header::TokenType;
use crate::base::show_io_error;

/// Error of a shard.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {}", path.display(), show_io_error(source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file has another format.
    #[error("`{}` is not a shard of tokens: {reason}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with its header.
        reason: String,
    },
    /// A file has another length than its header says.
    #[error(
        "`{}` is {}: expected {expected} bytes for {tokens} tokens, found {found}",
        path.display(),
        if found < expected { "truncated" } else { "too long" }
    )]
    Length {
        /// Path of the file.
        path: PathBuf,
        /// Number of tokens in the header.
        tokens: usize,
        /// Bytes that they need, with the header.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// All files together are shorter than one sample.
    #[error("{tokens} tokens are too few for this `--block`, at least {needed} are needed")]
    TooFewTokens {
        /// Number of tokens of all files.
        tokens: usize,
        /// Number of tokens of a sample, targets included.
        needed: usize,
    },
    /// A token of a file is not in the vocabulary of a model.
    #[error(
        "`{}` has token {token} at position {position}; a vocabulary of {size} tokens has only tokens 0 \
         to {}",
        path.display(),
        size.saturating_sub(1)
    )]
    OutsideVocabulary {
        /// Path of the file.
        path: PathBuf,
        /// Number of tokens before it in the file.
        position: usize,
        /// Number of the token in the vocabulary.
        token: u32,
        /// Size of the vocabulary.
        size: usize,
    },
    /// The path of a file to write is a directory.
    #[error("cannot write `{}`: it is a directory", path.display())]
    IsDirectory {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A token does not fit the type of a file to write.
    #[error("token {token} does not fit {token_type}")]
    TokenTooLarge {
        /// Number of the token in the vocabulary.
        token: u32,
        /// Type of the file.
        token_type: TokenType,
    },
    /// The header has no room for the number of tokens.
    #[error("`{}` would have more than {max} tokens", path.display())]
    TooManyTokens {
        /// Path of the file.
        path: PathBuf,
        /// Largest number of tokens in a file.
        max: usize,
    },
    /// A file to write exists.
    #[error("`{}` exists", path.display())]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {}", path.display(), show_io_error(source))]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

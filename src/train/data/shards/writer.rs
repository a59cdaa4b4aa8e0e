//! Writing of tokens into one shard or several.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::draft::DraftFile;
use super::error::ShardError;
use super::header::{HEADER_BYTES, ShardHeader, TOKENS_MAX, TokenType};

/// Size of the buffer of a file.
const BUFFER_BYTES: usize = 1 << 20;

/// What is done with a file that has the name of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingFiles {
    /// It stays as it is, and nothing is written.
    Refuse,
    /// It is replaced when all shards are complete.
    Replace,
}

/// How shards are written.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Path of the shard. With `tokens_max`, numbers are added to the name: `a_000000.bin` for `a.bin`.
    pub path: PathBuf,
    /// Type of the tokens.
    pub token_type: TokenType,
    /// Number of tokens after which the next shard begins; without it there is one shard.
    pub tokens_max: Option<NonZeroUsize>,
    /// What is done with files of the same names.
    pub existing: ExistingFiles,
}

/// A shard that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenShard {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of tokens.
    pub tokens: usize,
    /// Number of bytes.
    pub bytes: u64,
}

/// Writer of tokens. The files get their names in [`Self::finish`], after all of them are on the disk; if
/// that is not called, none remains.
#[derive(Debug)]
pub struct ShardWriter {
    options: ShardOptions,
    complete: Vec<CompleteShard>,
    open: OpenShard,
}

/// A shard that still grows.
#[derive(Debug)]
struct OpenShard {
    draft: DraftFile,
    file: BufWriter<File>,
    tokens: usize,
}

/// A shard that is on the disk, under its temporary name.
#[derive(Debug)]
struct CompleteShard {
    draft: DraftFile,
    written: WrittenShard,
}

impl ShardWriter {
    /// Creates the first shard.
    pub fn create(options: ShardOptions) -> Result<Self, ShardError> {
        let open = OpenShard::create(&options, 0)?;
        Ok(Self { options, complete: Vec::new(), open })
    }

    /// Appends tokens.
    pub fn write(&mut self, mut tokens: &[u32]) -> Result<(), ShardError> {
        let max = self.options.tokens_max.map_or(TOKENS_MAX, NonZeroUsize::get).min(TOKENS_MAX);
        while !tokens.is_empty() {
            if self.open.tokens == max {
                self.begin_next()?;
            }
            let (now, later) = tokens.split_at(tokens.len().min(max - self.open.tokens));
            self.open.write(now, self.options.token_type)?;
            tokens = later;
        }
        Ok(())
    }

    /// Returns whether no token was written.
    pub fn is_empty(&self) -> bool {
        self.complete.is_empty() && self.open.tokens == 0
    }

    fn begin_next(&mut self) -> Result<(), ShardError> {
        if self.options.tokens_max.is_none() {
            let path = self.options.path.clone();
            return Err(ShardError::TooManyTokens { path, max: TOKENS_MAX });
        }
        let next = OpenShard::create(&self.options, self.complete.len() + 1)?;
        let full = std::mem::replace(&mut self.open, next);
        self.complete.push(full.complete(self.options.token_type)?);
        Ok(())
    }

    /// Syncs the last shard, and gives all shards their names.
    pub fn finish(mut self) -> Result<Vec<WrittenShard>, ShardError> {
        self.complete.push(self.open.complete(self.options.token_type)?);
        let mut written = Vec::new();
        for shard in self.complete {
            let path = shard.draft.target().to_owned();
            let named = match self.options.existing {
                ExistingFiles::Refuse => shard.draft.publish(),
                ExistingFiles::Replace => shard.draft.replace(),
            };
            match named {
                Ok(()) => written.push(shard.written),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(ShardError::Exists { path });
                }
                Err(source) => return Err(ShardError::Write { path, source }),
            }
        }
        Ok(written)
    }
}

impl OpenShard {
    fn create(options: &ShardOptions, number: usize) -> Result<Self, ShardError> {
        let path = shard_path(&options.path, options.tokens_max.map(|_| number));
        if path.is_dir() {
            return Err(ShardError::IsDirectory { path });
        }
        if options.existing == ExistingFiles::Refuse && fs::symlink_metadata(&path).is_ok() {
            return Err(ShardError::Exists { path });
        }
        let create = || {
            let (draft, file) = DraftFile::create(&path)?;
            let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
            file.write_all(&[0; HEADER_BYTES])?;
            Ok(Self { draft, file, tokens: 0 })
        };
        create().map_err(|source| ShardError::Write { path, source })
    }

    fn write(&mut self, tokens: &[u32], token_type: TokenType) -> Result<(), ShardError> {
        self.tokens += tokens.len();
        for &token in tokens {
            let written = match token_type {
                TokenType::U16 => match u16::try_from(token) {
                    Ok(token) => self.file.write_all(&token.to_le_bytes()),
                    Err(_) => return Err(ShardError::TokenTooLarge { token, token_type }),
                },
                TokenType::U32 => self.file.write_all(&token.to_le_bytes()),
            };
            written.map_err(self.failed())?;
        }
        Ok(())
    }

    /// Writes the header, and syncs the file.
    fn complete(mut self, token_type: TokenType) -> Result<CompleteShard, ShardError> {
        let header = ShardHeader { token_type, tokens: self.tokens };
        let mut write = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&header.to_bytes())?;
            self.file.flush()?;
            self.file.get_ref().sync_all()
        };
        write().map_err(self.failed())?;
        let path = self.draft.target().to_owned();
        let written = WrittenShard { path, tokens: header.tokens, bytes: header.file_bytes() };
        Ok(CompleteShard { draft: self.draft, written })
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> ShardError + use<> {
        let path = self.draft.target().to_owned();
        move |source| ShardError::Write { path, source }
    }
}

/// Path of a shard: with its number before the extension, if it has one.
fn shard_path(path: &Path, number: Option<usize>) -> PathBuf {
    let Some(number) = number else { return path.to_owned() };
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push(format!("_{number:06}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

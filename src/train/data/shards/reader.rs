//! One shard of tokens, memory-mapped.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ShardError;
use super::header::{HEADER_BYTES, ShardHeader, TokenType};
use crate::train::data::mmap::MappedFile;

/// File of tokens whose length is that which its header says.
#[derive(Debug)]
pub struct TokenShard {
    path: PathBuf,
    file: MappedFile,
    header: ShardHeader,
}

impl TokenShard {
    /// Maps a file, and checks header and length.
    pub fn open(path: &Path) -> Result<Self, ShardError> {
        let path = path.to_owned();
        let file = match MappedFile::open(&path) {
            Ok(file) => file,
            Err(source) => return Err(ShardError::Read { path, source }),
        };
        let header = match ShardHeader::parse(&file) {
            Ok(header) => header,
            Err(reason) => return Err(ShardError::Format { path, reason }),
        };
        let (tokens, expected, found) = (header.tokens, header.file_bytes(), file.len() as u64);
        if expected != found {
            return Err(ShardError::Length { path, tokens, expected, found });
        }
        Ok(Self { path, file, header })
    }

    /// Returns whether a file begins as a shard does; `false` if it cannot be read.
    pub fn is_shard(path: &Path) -> bool {
        let mut first = Vec::new();
        let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut first));
        read.is_ok() && ShardHeader::begins(&first)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.header.tokens
    }

    /// Returns whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the type of the tokens.
    pub fn token_type(&self) -> TokenType {
        self.header.token_type
    }

    /// Reads the tokens `begin..begin + out.len()`, which must be in the shard.
    pub fn read(&self, begin: usize, out: &mut [u32]) {
        let size = self.header.token_type.bytes();
        let bytes = &self.file[HEADER_BYTES + begin * size..][..out.len() * size];
        match self.header.token_type {
            TokenType::U16 => {
                let (tokens, _) = bytes.as_chunks();
                let tokens = tokens.iter().map(|token| u32::from(u16::from_le_bytes(*token)));
                out.iter_mut().zip(tokens).for_each(|(out, token)| *out = token);
            }
            TokenType::U32 => {
                let (tokens, _) = bytes.as_chunks();
                let tokens = tokens.iter().map(|token| u32::from_le_bytes(*token));
                out.iter_mut().zip(tokens).for_each(|(out, token)| *out = token);
            }
        }
    }
}

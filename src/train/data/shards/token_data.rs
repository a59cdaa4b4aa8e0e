//! Shards as training data: one text of tokens, of which any part can be read.

use std::path::PathBuf;

use super::error::ShardError;
use super::reader::TokenShard;
use crate::train::data::windows::{self, TokenText};

/// Number of tokens that are read at once while all are checked.
const CHECKED_AT_ONCE: usize = 1 << 16;

/// Tokens of one or several shards, concatenated in the order in which they were named. Everything that is
/// read depends on the arguments alone, so every worker can read its own part.
///
/// A sample for sequences of `length` tokens has `length + 1`: the inputs are all but the last, the targets
/// all but the first.
#[derive(Debug)]
pub struct TokenData {
    shards: Vec<TokenShard>,
    /// Number of tokens before each shard.
    starts: Vec<usize>,
    len: usize,
}

impl TokenData {
    /// Opens the files, which may have tokens of different types.
    pub fn open(files: &[PathBuf]) -> Result<Self, ShardError> {
        let shards: Vec<TokenShard> =
            files.iter().map(|file| TokenShard::open(file)).collect::<Result<_, _>>()?;
        let mut len = 0;
        let mut starts = Vec::new();
        for shard in &shards {
            starts.push(len);
            len += shard.len();
        }
        Ok(Self { shards, starts, len })
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of samples for sequences of `length` tokens; the error says that there is none.
    pub fn samples(&self, length: usize) -> Result<usize, ShardError> {
        match self.len.saturating_sub(1).checked_div(length) {
            Some(samples) if 0 < samples => Ok(samples),
            _ => Err(ShardError::TooFewTokens { tokens: self.len, needed: length + 1 }),
        }
    }

    /// Checks that every token is in a vocabulary of this size. Reads everything.
    pub fn check_vocabulary(&self, size: usize) -> Result<(), ShardError> {
        let mut tokens = vec![0; CHECKED_AT_ONCE];
        for shard in &self.shards {
            for begin in (0..shard.len()).step_by(CHECKED_AT_ONCE) {
                let tokens = &mut tokens[..CHECKED_AT_ONCE.min(shard.len() - begin)];
                shard.read(begin, tokens);
                let outside = tokens.iter().position(|token| size <= *token as usize);
                if let Some(at) = outside {
                    let (path, position) = (shard.path().to_owned(), begin + at);
                    return Err(ShardError::OutsideVocabulary {
                        path,
                        position,
                        token: tokens[at],
                        size,
                    });
                }
            }
        }
        Ok(())
    }

    /// Reads sample `index` of [`Self::samples`] for sequences of `out.len() - 1` tokens. Samples follow each
    /// other: the first input of a sample is the last target of the sample before it.
    pub fn read_sample(&self, index: usize, out: &mut [u32]) {
        self.read(index * (out.len() - 1), out);
    }

    /// Returns the size of the vocabulary of a model that learns these tokens in sequences of `block`: the
    /// given one, which must have all tokens, or a multiple of 64 that has.
    pub fn vocabulary_for(&self, block: usize, given: Option<usize>) -> Result<usize, ShardError> {
        const PADDING: usize = 64;
        if !windows::is_long_enough(self.len, block) {
            let needed = windows::needed_tokens(block);
            return Err(ShardError::TooFewTokens { tokens: self.len, needed });
        }
        match given {
            Some(size) => self.check_vocabulary(size).map(|()| size),
            None => Ok((self.largest().unwrap_or(0) as usize + 1).next_multiple_of(PADDING)),
        }
    }

    /// Returns the largest token; `None` if there is no token. Reads everything.
    pub fn largest(&self) -> Option<u32> {
        let mut tokens = vec![0; CHECKED_AT_ONCE];
        let starts = (0..self.len).step_by(CHECKED_AT_ONCE);
        let largest = starts.filter_map(|begin| {
            let tokens = &mut tokens[..CHECKED_AT_ONCE.min(self.len - begin)];
            self.read(begin, tokens);
            tokens.iter().max().copied()
        });
        largest.max()
    }

    /// Reads the tokens `begin..begin + out.len()`, which must be in the data.
    pub fn read(&self, begin: usize, mut out: &mut [u32]) {
        assert!(begin + out.len() <= self.len, "{} tokens from {begin} of {}", out.len(), self.len);
        let first = self.starts.partition_point(|start| *start <= begin).saturating_sub(1);
        let mut offset = begin - self.starts.get(first).copied().unwrap_or_default();
        for shard in &self.shards[first..] {
            let (now, later) = out.split_at_mut(out.len().min(shard.len() - offset));
            shard.read(offset, now);
            if later.is_empty() {
                return;
            }
            (out, offset) = (later, 0);
        }
    }
}

impl TokenText for TokenData {
    fn token_count(&self) -> usize {
        self.len
    }

    fn read_tokens(&self, begin: usize, out: &mut [u32]) {
        self.read(begin, out);
    }
}

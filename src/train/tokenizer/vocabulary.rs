//! Content of a vocabulary, whatever file it is from.

use std::collections::HashMap;
use std::path::Path;

use super::error::VocabularyError;
use super::merge::{Merge, MergeTable};
use super::split::SplitPattern;

/// Largest number of a token; no published vocabulary has a tenth of it.
const TOKEN_MAX: u32 = (1 << 22) - 1;

/// Tokens with their bytes and merges. Every byte is a token, and both parts and the result of every merge
/// are tokens.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// Bytes of every token; empty for numbers that are no token, and for special tokens.
    pub(super) tokens: Vec<Box<[u8]>>,
    /// Token of every byte.
    pub(super) of_byte: [u32; 256],
    /// Names and numbers of the special tokens, in the order of the file.
    pub(super) special: Vec<(String, u32)>,
    pub(super) merges: MergeTable,
    pub(super) pattern: SplitPattern,
    pub(super) whole_words: WholeWords,
}

/// Whether a word that is a token as a whole is that token, however its parts would be merged.
#[derive(Debug)]
pub(super) enum WholeWords {
    /// It is; the map has the token of every text.
    AreTokens(HashMap<Box<[u8]>, u32>),
    /// Only merges count.
    AreMerged,
}

/// Tokens of a file, added one by one.
#[derive(Debug, Default)]
pub(super) struct TokenList {
    tokens: Vec<Box<[u8]>>,
}

impl TokenList {
    /// Adds a token; the error is the reason why it cannot be one.
    pub(super) fn add(&mut self, token: u32, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Err(format!("token {token} is empty"));
        }
        let place = self.place(token)?;
        if !place.is_empty() {
            let (old, new) = (place.escape_ascii().to_string(), bytes.escape_ascii());
            return Err(format!("token {token} is both `{old}` and `{new}`"));
        }
        *place = bytes.into();
        Ok(())
    }

    /// Keeps a number for a special token.
    pub(super) fn reserve(&mut self, token: u32) -> Result<(), String> {
        self.place(token).map(|_| ())
    }

    fn place(&mut self, token: u32) -> Result<&mut Box<[u8]>, String> {
        if TOKEN_MAX < token {
            return Err(format!("token {token} is larger than {TOKEN_MAX}"));
        }
        let index = token as usize;
        if self.tokens.len() <= index {
            self.tokens.resize_with(index + 1, Box::default);
        }
        Ok(&mut self.tokens[index])
    }

    /// The smallest number that is no token.
    pub(super) fn first_free(&self) -> u32 {
        let free = self.tokens.iter().position(|bytes| bytes.is_empty());
        free.unwrap_or(self.tokens.len()) as u32
    }

    /// Number of tokens.
    pub(super) fn count(&self) -> usize {
        self.tokens.iter().filter(|bytes| !bytes.is_empty()).count()
    }

    /// Returns the tokens and the token of every byte; the error is a byte without a token.
    pub(super) fn finish(self, path: &Path) -> Result<CheckedTokens, VocabularyError> {
        let mut of_byte = [None; 256];
        for (token, bytes) in (0..).zip(&self.tokens) {
            if let [byte] = **bytes {
                of_byte[usize::from(byte)] = Some(token);
            }
        }
        if let Some(byte) = of_byte.iter().position(Option::is_none) {
            let reason =
                format!("no token is the byte {byte:#04x}, so it is no byte-level vocabulary");
            return Err(VocabularyError::malformed(path, None, reason));
        }
        let of_byte = of_byte.map(|token| token.expect("no byte is missing"));
        Ok(CheckedTokens { tokens: self.tokens, of_byte })
    }
}

/// Tokens of a vocabulary in which every byte is a token.
pub(super) struct CheckedTokens {
    /// Bytes of every token; empty: the number is no token.
    pub(super) tokens: Vec<Box<[u8]>>,
    /// Token of every byte.
    pub(super) of_byte: [u32; 256],
}

/// Numbers of tokens by their bytes.
pub(super) fn tokens_by_bytes(tokens: &[Box<[u8]>]) -> HashMap<Box<[u8]>, u32> {
    let named = tokens.iter().zip(0..).filter(|(bytes, _)| !bytes.is_empty());
    named.map(|(bytes, token)| (bytes.clone(), token)).collect()
}

/// Merges of a vocabulary whose numbers are ranks: every division of a token into two tokens.
pub(super) fn merges_of_ranks(by_bytes: &HashMap<Box<[u8]>, u32>) -> MergeTable {
    let mut merges = MergeTable::default();
    for (bytes, &token) in by_bytes {
        for at in 1..bytes.len() {
            let (left, right) = bytes.split_at(at);
            if let (Some(&left), Some(&right)) = (by_bytes.get(left), by_bytes.get(right)) {
                merges.insert(left, right, Merge { rank: token, token });
            }
        }
    }
    merges
}

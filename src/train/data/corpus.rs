//! Training text: any bytes, from files or built in, as tokens of a small vocabulary.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::base::show_io_error;
use crate::train::data::mmap::MappedFile;
use crate::train::data::windows::{self, SamplePosition, TokenText};
use crate::train::nn::gpt::Sequences;

/// Default text: a frozen snapshot of this project's own text.
static EMBEDDED: &[u8] = include_bytes!("corpus.txt");

/// Error of a training text.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {}", path.display(), show_io_error(source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// There is less text than one sequence for training and one for validation.
    #[error(
        "{len} bytes of text are too few for sequences of {block} tokens, at least {needed} are needed"
    )]
    TooShort {
        /// Bytes of all files.
        len: usize,
        /// Tokens of a sequence.
        block: usize,
        /// Smallest sufficient number of bytes.
        needed: usize,
    },
}

/// Training text whose bytes are tokens, numbered in the order of their values.
#[derive(Debug)]
pub struct Corpus {
    parts: Vec<Part>,
    len: usize,
    /// Byte of every token.
    vocabulary: Vec<u8>,
    /// Token of every byte that occurs.
    token_of: [u8; 256],
}

#[derive(Debug)]
enum Part {
    Mapped(MappedFile),
    Embedded(&'static [u8]),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(file) => file,
            Self::Embedded(bytes) => bytes,
        }
    }
}

impl Corpus {
    /// Opens a text: the files, concatenated, or the embedded text if there are none.
    pub fn open(files: &[PathBuf]) -> Result<Self, CorpusError> {
        match files {
            [] => Ok(Self::new(vec![Part::Embedded(EMBEDDED)])),
            files => files.iter().map(|path| map(path)).collect::<Result<_, _>>().map(Self::new),
        }
    }

    fn new(parts: Vec<Part>) -> Self {
        let mut occurs = [false; 256];
        for &byte in parts.iter().flat_map(Part::bytes) {
            occurs[usize::from(byte)] = true;
        }
        let vocabulary: Vec<u8> = (0..=255).filter(|&byte| occurs[usize::from(byte)]).collect();
        let mut token_of = [0; 256];
        for (token, &byte) in vocabulary.iter().enumerate() {
            token_of[usize::from(byte)] = token as u8;
        }
        Self { len: parts.iter().map(|part| part.bytes().len()).sum(), parts, vocabulary, token_of }
    }

    /// Returns the length of the text in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty text is rejected on construction")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the byte of every token.
    pub fn vocabulary(&self) -> &[u8] {
        &self.vocabulary
    }

    /// Returns the first eight hexadecimal digits of the SHA-256 of the vocabulary.
    pub fn digest(&self) -> String {
        let mut digits = format!("{:x}", Sha256::digest(&self.vocabulary));
        digits.truncate(8);
        digits
    }

    /// Returns the token of a byte, if it occurs in the text.
    pub fn token(&self, byte: u8) -> Option<u8> {
        let token = self.token_of[usize::from(byte)];
        (self.vocabulary.get(usize::from(token)) == Some(&byte)).then_some(token)
    }

    /// Checks that there is at least one sequence of `block` tokens on both sides of the split.
    pub fn check_block(&self, block: usize) -> Result<(), CorpusError> {
        Self::check_len(self.len, block)
    }

    /// Same as [`Self::check_block`] for a text of `len` bytes.
    pub fn check_len(len: usize, block: usize) -> Result<(), CorpusError> {
        if windows::is_long_enough(len, block) {
            return Ok(());
        }
        Err(CorpusError::TooShort { len, block, needed: windows::needed_tokens(block) })
    }

    /// Returns the length of the embedded text in bytes.
    pub fn embedded_len() -> usize {
        EMBEDDED.len()
    }

    /// Returns the micro-batch of a lane at a step: `count` sequences of `length` tokens from random
    /// positions of the training part. It depends only on its arguments, not on the worker.
    pub fn batch(&self, position: SamplePosition, count: usize, length: usize) -> Sequences {
        windows::random_batch(self, position, count, length)
    }

    /// Returns the held-out part as adjacent sequences, in batches of `count`. If there are more than
    /// `windows_max` sequences, that many are selected at even distances.
    pub fn validation(&self, count: usize, length: usize, windows_max: usize) -> Vec<Sequences> {
        windows::held_out_batches(self, count, length, windows_max)
    }
}

impl TokenText for Corpus {
    fn token_count(&self) -> usize {
        self.len
    }

    fn read_tokens(&self, mut begin: usize, mut out: &mut [u32]) {
        for bytes in self.parts.iter().map(Part::bytes) {
            let count = bytes.len().saturating_sub(begin).min(out.len());
            let (now, later) = out.split_at_mut(count);
            if 0 < count {
                let tokens = bytes[begin..][..count].iter().map(|&b| self.token_of[usize::from(b)]);
                now.iter_mut().zip(tokens).for_each(|(out, token)| *out = token.into());
            }
            begin = begin.saturating_sub(bytes.len());
            out = later;
        }
    }
}

fn map(path: &Path) -> Result<Part, CorpusError> {
    let file = MappedFile::open(path);
    file.map(Part::Mapped).map_err(|source| CorpusError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(parts: &[&'static [u8]]) -> Corpus {
        Corpus::new(parts.iter().map(|&bytes| Part::Embedded(bytes)).collect())
    }

    #[test]
    fn corpus_embedded_text_is_frozen() {
        assert!(EMBEDDED.len() <= 512 * 1024);
        let frozen = include_str!("corpus.sha256").trim();
        assert_eq!(format!("{:x}", Sha256::digest(EMBEDDED)), frozen);
    }

    #[test]
    fn corpus_tokens_are_the_distinct_bytes_in_order() {
        let corpus = corpus(&[b"banana", b"\xff\0"]);
        assert_eq!(corpus.vocabulary(), b"\0abn\xff");
        assert_eq!(corpus.token(b'n'), Some(3));
        assert_eq!(corpus.token(b'x'), None);
    }

    #[test]
    fn corpus_windows_cross_file_borders() {
        let corpus = corpus(&[b"abc", b"", b"def", b"g"]);
        let mut out = [9; 6];
        corpus.read_tokens(1, &mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn corpus_targets_are_the_next_tokens() {
        static TEXT: [u8; 256] = {
            let mut t = [0; 256];
            let mut i = 0;
            while i < 256 {
                t[i] = i as u8;
                i += 1;
            }
            t
        };
        let corpus = corpus(&[&TEXT]);
        let position = SamplePosition { seed: 1, step: 2, lane: 3 };
        let batch = corpus.batch(position, 4, 8);
        assert!(
            batch.inputs.iter().zip(&batch.targets).all(|(input, target)| input + 1 == *target)
        );
        assert!(
            batch.targets.iter().all(|&token| token < 231),
            "training never uses the last tenth"
        );
        assert_eq!(batch, corpus.batch(position, 4, 8));
        assert_ne!(batch, corpus.batch(SamplePosition { lane: 4, ..position }, 4, 8));
    }

    #[test]
    fn corpus_validation_covers_the_last_tenth() {
        let corpus = corpus(&[EMBEDDED]);
        let begin = EMBEDDED.len() - EMBEDDED.len() / 10;
        let batches = corpus.validation(12, 64, usize::MAX);
        let tokens: Vec<u32> = batches.iter().flat_map(|batch| batch.inputs.clone()).collect();
        assert_eq!(tokens.len(), (EMBEDDED.len() / 10 - 1) / 64 * 64);
        let text =
            EMBEDDED[begin..].iter().map(|&byte| corpus.token(byte).expect("a byte of the text"));
        assert!(text.zip(tokens).all(|(a, b)| u32::from(a) == b));
        let some = corpus.validation(12, 64, 30);
        assert_eq!(some.iter().map(|batch| batch.inputs.len()).sum::<usize>(), 30 * 64);
    }

    #[test]
    fn corpus_error_of_a_short_text_has_the_minimum() {
        let short = corpus(&[&EMBEDDED[..100]]).check_block(64).expect_err("100 bytes");
        assert_eq!(
            short.to_string(),
            "100 bytes of text are too few for sequences of 64 tokens, at least 650 are needed"
        );
        assert!(corpus(&[&EMBEDDED[..650]]).check_block(64).is_ok());
    }
}

//! Long texts to tokens, in several threads.

use std::num::NonZeroUsize;
use std::thread;

use super::encoder::Encoder;
use super::split::safe_cut;
use super::vocabulary::Vocabulary;

/// Smallest part of a text for a thread, in bytes: takes some 20 ms, thousands of times the start of a thread.
const PART_BYTES: usize = 1 << 20;

/// Encoder with several threads. The tokens are those of [`Encoder`], in the same order.
#[derive(Debug)]
pub struct ParallelEncoder<'a> {
    threads: Vec<EncoderThread<'a>>,
}

/// What a thread uses.
#[derive(Debug)]
struct EncoderThread<'a> {
    encoder: Encoder<'a>,
    tokens: Vec<u32>,
}

impl<'a> ParallelEncoder<'a> {
    pub(super) fn new(vocabulary: &'a Vocabulary, count: NonZeroUsize) -> Self {
        let thread = |_| EncoderThread { encoder: Encoder::new(vocabulary), tokens: Vec::new() };
        Self { threads: (0..count.get()).map(thread).collect() }
    }

    /// Calls a function with the tokens of a text, part after part, until it fails. The memory in use does
    /// not grow with the text.
    pub fn encode<E>(
        &mut self,
        text: &str,
        mut take: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = text;
        while !rest.is_empty() {
            thread::scope(|scope| {
                for thread in &mut self.threads {
                    let (part, after) = rest.split_at(safe_cut(rest, PART_BYTES.min(rest.len())));
                    rest = after;
                    thread.tokens.clear();
                    if after.is_empty() && part.len() < PART_BYTES {
                        thread.encoder.encode(part, &mut thread.tokens);
                    } else {
                        scope.spawn(move || thread.encoder.encode(part, &mut thread.tokens));
                    }
                }
            });
            for thread in &self.threads {
                take(&thread.tokens)?;
            }
        }
        Ok(())
    }
}

//! Parts of a text of tokens: random ones for training, and those that are held out.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

use crate::runtime::RandomStream;
use crate::train::nn::gpt::Sequences;

/// Random stream of the batches, different from those of the initial values.
const BATCH_STREAM: u64 = 0xba7c;

/// Position of a micro-batch in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePosition {
    /// Seed of the run.
    pub seed: u64,
    /// Step, from 0.
    pub step: u64,
    /// Lane: rank · accumulate + micro-batch.
    pub lane: u64,
}

/// A text of tokens of which any part can be read. Everything that is read depends on the arguments alone, so
/// every worker can read its own part.
pub(crate) trait TokenText {
    /// Number of tokens.
    fn token_count(&self) -> usize;

    /// Reads the tokens `begin..begin + out.len()`, which must be in the text.
    fn read_tokens(&self, begin: usize, out: &mut [u32]);
}

/// Returns a number that other tokens, or the same in another order, are unlikely to have: a hash of their
/// count and of tokens at evenly spaced places.
pub(crate) fn fingerprint(text: &impl TokenText) -> u64 {
    const PLACES: usize = 1024;
    const READ_AT_ONCE: usize = 16;
    let count = text.token_count();
    let mut hash = Sha256::new();
    hash.update((count as u64).to_le_bytes());
    let mut tokens = vec![0; READ_AT_ONCE.min(count)];
    let last = count - tokens.len();
    for place in 0..PLACES {
        text.read_tokens((last as f64 * place as f64 / PLACES as f64) as usize, &mut tokens);
        hash.update(bytemuck::cast_slice(&tokens));
    }
    let digest: [u8; 32] = hash.finalize().into();
    let (first, _) = digest.split_first_chunk().expect("it has 32 bytes");
    u64::from_le_bytes(*first)
}

/// Whether there is at least one sequence of `block` tokens on both sides of the split.
pub(crate) fn is_long_enough(tokens: usize, block: usize) -> bool {
    block < tokens / 10
}

/// Smallest number of tokens that is long enough.
pub(crate) fn needed_tokens(block: usize) -> usize {
    10usize.saturating_mul(block.saturating_add(1))
}

/// Range of the first nine tenths, from which batches are drawn.
fn training(text: &impl TokenText) -> Range<usize> {
    let tokens = text.token_count();
    0..tokens - tokens / 10
}

/// Reads the sequences that begin at these positions.
fn sequences(
    text: &impl TokenText,
    starts: impl Iterator<Item = usize>,
    length: usize,
) -> Sequences {
    let mut window = vec![0; length + 1];
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for start in starts {
        text.read_tokens(start, &mut window);
        inputs.extend_from_slice(&window[..length]);
        targets.extend_from_slice(&window[1..]);
    }
    Sequences { length, inputs, targets }
}

/// Returns the micro-batch of a lane at a step: `count` sequences of `length` tokens from random
/// positions of the training part.
pub(crate) fn random_batch(
    text: &impl TokenText,
    position: SamplePosition,
    count: usize,
    length: usize,
) -> Sequences {
    let SamplePosition { seed, step, lane } = position;
    let mut stream = RandomStream::new(&[seed, BATCH_STREAM, step, lane]);
    let starts = training(text).len() - length;
    sequences(text, (0..count).map(|_| stream.below(starts)), length)
}

/// Returns the held-out part, the last tenth, as adjacent sequences, in batches of `count`. If there are more
/// than `windows_max` sequences, that many are selected at even distances.
pub(crate) fn held_out_batches(
    text: &impl TokenText,
    count: usize,
    length: usize,
    windows_max: usize,
) -> Vec<Sequences> {
    let held_out = training(text).end..text.token_count();
    let windows = (held_out.len() - 1) / length;
    let selected = windows.min(windows_max);
    let starts: Vec<usize> =
        (0..selected).map(|i| held_out.start + i * windows / selected * length).collect();
    starts.chunks(count).map(|starts| sequences(text, starts.iter().copied(), length)).collect()
}

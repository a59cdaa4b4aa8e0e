//! [`Sampler`]: the GPT of a checkpoint continues tokens.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::runtime::RandomStream;
use crate::runtime::checkpoint::{CheckpointReader, OpenError};
use crate::runtime::engine::{Model as _, loss_of};
use crate::train::nn::cpu::kernels;
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::gpt::{Gpt, GptConfig, Sequences};
use crate::train::nn::model_id::ModelId;
use crate::train::saved_training::{SavedTraining, inspect};

/// Random stream of samples, different from those of batches and initial values.
const SAMPLE_STREAM: u64 = 0x5a3b;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenChoice {
    /// Divisor of the logits: below 1, likely tokens become more likely; 0: the most likely one is taken.
    pub temperature: f32,
    /// Number of the most likely tokens of which one is drawn; `None`: all of them.
    pub top_k: Option<NonZeroUsize>,
}

impl TokenChoice {
    /// Chooses a token by the logits, which are replaced by the probabilities; they are not, if the most
    /// likely token is taken.
    pub(crate) fn choose(&self, logits: &mut [f32], stream: &mut RandomStream) -> u32 {
        if self.temperature <= 0.0 {
            return most_likely(logits);
        }
        let count = logits.len();
        kernels::causal_softmax(logits, count, count - 1, 1.0 / self.temperature);
        let mass = self.top_k.map_or(1.0, |k| keep_likely(logits, k.get()));
        let mut rest = stream.unit() as f32 * mass;
        let drawn = logits.iter().position(|prob| {
            rest -= prob;
            rest < 0.0
        });
        // Rounding can leave a rest behind the last token that is possible.
        let last = || logits.iter().rposition(|prob| 0.0 < *prob).unwrap_or(count - 1);
        drawn.unwrap_or_else(last) as u32
    }
}

/// The token with the largest logit; of equal ones, the first.
fn most_likely(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if logits[best] < *logit {
            best = token;
        }
    }
    best as u32
}

/// Sets all but the `k` largest probabilities to 0; returns the sum of the rest.
fn keep_likely(probs: &mut [f32], k: usize) -> f32 {
    if k < probs.len() {
        let mut order: Vec<usize> = (0..probs.len()).collect();
        order.select_nth_unstable_by(k, |one, other| {
            probs[*other].total_cmp(&probs[*one]).then(one.cmp(other))
        });
        for token in &order[k..] {
            probs[*token] = 0.0;
        }
    }
    probs.iter().sum()
}

/// Natural logarithm of the probability that the model gives a token.
fn log_probability(logits: &[f32], token: u32) -> f64 {
    let top = logits.iter().fold(f32::MIN, |top, logit| top.max(*logit));
    let mass: f64 = logits.iter().map(|logit| f64::from(logit - top).exp()).sum();
    f64::from(logits[token as usize] - top) - mass.ln()
}

/// A token that was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledToken {
    /// Number of the token.
    pub token: u32,
    /// Natural logarithm of the probability that the model gives it, at a temperature of 1.
    pub log_probability: f64,
}

/// The vocabulary of a model, as its checkpoint records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelVocabulary {
    /// Number of tokens.
    pub tokens: usize,
    /// Digest of the bytes that occur in the text, or [`TOKENS_OF_SHARDS`](crate::train::TOKENS_OF_SHARDS).
    pub digest: String,
}

/// GPT with the weights of a checkpoint.
#[derive(Debug)]
pub struct Sampler {
    model: Gpt<f32>,
    params: Vec<f32>,
    saved: SavedTraining,
    vocabulary: ModelVocabulary,
}

/// Error of a checkpoint from which no text can be sampled.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The model is none of texts.
    #[error("the model of `{}` is an MLP, which has no text", path.display())]
    NoText {
        /// Path of the checkpoint.
        path: PathBuf,
    },
}

impl Sampler {
    /// Reads the weights of a checkpoint, or of a directory's newest one.
    ///
    /// # Errors
    /// If there is no checkpoint, it is damaged, or its model is no GPT.
    pub fn open(path: &Path, threads: Threads) -> Result<Self, SampleError> {
        let saved = inspect(path)?;
        let &ModelId::Gpt { architecture, layers, heads, width, block, vocabulary, ref bytes } =
            &saved.model
        else {
            return Err(SampleError::NoText { path: saved.path });
        };
        let config = GptConfig { architecture, vocabulary, block, layers, heads, width };
        let model = Gpt::new(config, threads);
        let reader = CheckpointReader::open(&saved.path)?;
        let mut params = vec![0.0; model.parameters().len()];
        for parameter in model.parameters() {
            let values = &mut params[parameter.range.clone()];
            reader.read(&parameter.name, 0..values.len(), values)?;
        }
        let vocabulary = ModelVocabulary { tokens: vocabulary, digest: bytes.clone() };
        Ok(Self { model, params, saved, vocabulary })
    }

    /// Returns what the checkpoint says.
    pub fn saved(&self) -> &SavedTraining {
        &self.saved
    }

    /// Returns the vocabulary of the model.
    pub fn vocabulary(&self) -> &ModelVocabulary {
        &self.vocabulary
    }

    /// Continues tokens by one that `choice` draws; the model sees the last [`GptConfig::block`] of them.
    ///
    /// # Panics
    /// If there is no token, or one is not in the vocabulary.
    pub fn next_token(
        &mut self,
        tokens: &[u32],
        choice: TokenChoice,
        stream: &mut RandomStream,
    ) -> SampledToken {
        assert!(!tokens.is_empty(), "a model continues at least one token");
        let inputs = tokens[tokens.len().saturating_sub(self.model.config().block)..].to_vec();
        let batch = Sequences { length: inputs.len(), inputs, targets: Vec::new() };
        loss_of(&mut self.model, &self.params, &batch).expect("a GPT names its units");
        let logits = self.model.next_token_scores();
        let token = choice.choose(&mut logits.to_vec(), stream);
        SampledToken { token, log_probability: log_probability(logits, token) }
    }
}

/// Returns the random numbers of a sample.
pub fn sample_stream(seed: u64) -> RandomStream {
    RandomStream::new(&[seed, SAMPLE_STREAM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(temperature: f32, top_k: usize, possible: &[u32]) {
        let choice = TokenChoice { temperature, top_k: NonZeroUsize::new(top_k) };
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let mut logits = [1.0, 3.0, 0.5, 3.0, 2.0];
            seen.insert(choice.choose(&mut logits, &mut sample_stream(seed)));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), possible);
    }

    #[test]
    fn probabilities_of_all_tokens_add_up_to_one() {
        let logits = [1.0, -3.0, 0.5, 80.0, 79.5];
        let sum: f64 = (0..5).map(|token| log_probability(&logits, token).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        assert!((log_probability(&[0.0; 4], 2) + 4.0_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn token_is_one_of_the_most_likely() {
        check(0.0, 0, &[1]);
        check(1.0, 1, &[1]);
        check(1.0, 2, &[1, 3]);
        check(1.0, 3, &[1, 3, 4]);
        check(2.0, 0, &[0, 1, 2, 3, 4]);
        check(2.0, 9, &[0, 1, 2, 3, 4]);
    }
}

//! Language task: a GPT learns to continue a text.

use crate::runtime::RandomStream;
use crate::runtime::engine::EngineError;
use crate::train::data::corpus::{Corpus, CorpusError, SamplePosition};
use crate::train::nn::cpu::kernels;
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::gpt::Sequences;
use crate::train::nn::gpt::{Gpt, GptConfig};
use crate::train::nn::model_id::ModelId;
use crate::train::options::{GptOptions, TrainOptions};
use crate::train::report::progress::Count;
use crate::train::task::definition::{Extent, ItemUnit, Task, TaskEngine};

/// Number of held-out sequences that are evaluated during the run.
const WINDOWS_SAMPLE: usize = 480;
/// Largest number of held-out sequences that are evaluated at the end: 4 MiB of text in blocks of 64.
const WINDOWS_MAX: usize = 64 * 1024;
/// Number of characters of the sample.
const SAMPLE_LEN: usize = 320;
/// Temperature of the sample; below 1, likely characters become more likely.
const TEMPERATURE: f32 = 0.8;
/// Random stream of the sample, different from those of batches and initial values.
const SAMPLE_STREAM: u64 = 0x5a3b;

/// A text that a model learns.
#[derive(Debug)]
pub(crate) struct Language {
    corpus: Corpus,
    config: GptConfig,
    threads: Threads,
    batch_size: usize,
}

impl Language {
    /// Opens the text.
    pub(crate) fn new(gpt: &GptOptions, options: &TrainOptions) -> Result<Self, CorpusError> {
        let &GptOptions { block, layers, heads, width, ref data } = gpt;
        let corpus = Corpus::open(data)?;
        corpus.check_block(block)?;
        let config =
            GptConfig { vocabulary: corpus.vocabulary().len(), block, layers, heads, width };
        let (threads, batch_size) = (options.threads, options.batch_size.get());
        Ok(Self { corpus, config, threads, batch_size })
    }
}

/// Draws a token from the model's logits, which are replaced by probabilities.
fn sample_token(scores: &mut [f32], stream: &mut RandomStream) -> u8 {
    let vocabulary = scores.len();
    kernels::causal_softmax(scores, vocabulary, vocabulary - 1, 1.0 / TEMPERATURE);
    let mut rest = stream.unit() as f32;
    let token = scores.iter().position(|prob| {
        rest -= prob;
        rest < 0.0
    });
    token.unwrap_or(vocabulary - 1) as u8
}

impl Task for Language {
    type Model = Gpt<f32>;

    fn new_model(&self) -> Gpt<f32> {
        Gpt::new(self.config, self.threads)
    }

    fn title(&self) -> String {
        let GptConfig { vocabulary, block, layers, heads, width } = &self.config;
        let (layers, heads) = (Count(*layers, "layer"), Count(*heads, "head"));
        format!(
            "gpt of {layers}, {heads}, width {width}, block {block}; \
             {} bytes of text, {vocabulary} different bytes",
            self.corpus.len()
        )
    }

    fn identity(&self) -> ModelId {
        let GptConfig { vocabulary, block, layers, heads, width } = self.config;
        let bytes = self.corpus.digest();
        ModelId::Gpt { layers, heads, width, block, vocabulary, bytes }
    }

    fn unit(&self) -> ItemUnit {
        ItemUnit { name: "tokens", count: self.batch_size * self.config.block }
    }

    fn batch(&self, position: SamplePosition) -> Sequences {
        self.corpus.batch(position, self.batch_size, self.config.block)
    }

    fn validation(&self, extent: Extent) -> Vec<(Sequences, usize)> {
        let windows_max = match extent {
            Extent::Sample => WINDOWS_SAMPLE,
            Extent::Whole => WINDOWS_MAX,
        };
        let block = self.config.block;
        let batches = self.corpus.validation(self.batch_size, block, windows_max);
        let count = |batch: Sequences| {
            let items = batch.inputs.len();
            (batch, items)
        };
        batches.into_iter().map(count).collect()
    }

    fn sample(
        &self,
        engine: &mut TaskEngine<Self>,
        seed: u64,
    ) -> Result<Option<String>, EngineError> {
        let mut stream = RandomStream::new(&[seed, SAMPLE_STREAM]);
        let mut tokens = vec![self.corpus.token(b'\n').unwrap_or(0)];
        for _ in 0..SAMPLE_LEN {
            let inputs = tokens[tokens.len().saturating_sub(self.config.block)..].to_vec();
            let batch = Sequences { length: inputs.len(), inputs, targets: Vec::new() };
            engine.eval(&batch)?;
            tokens.push(sample_token(engine.model().next_token_scores(), &mut stream));
        }
        let text = tokens[1..].iter().map(|&token| self.corpus.vocabulary()[usize::from(token)]);
        Ok(Some(String::from_utf8_lossy(&text.collect::<Vec<u8>>()).into_owned()))
    }
}

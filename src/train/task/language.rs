//! Language task: a GPT learns to continue a text.

#[cfg(feature = "nccl")]
use std::sync::Arc;

#[cfg(feature = "nccl")]
use crate::cuda::device::Device;
#[cfg(feature = "nccl")]
use crate::runtime::engine::{DeviceReplica, Precision, Section, loss_of};
use crate::runtime::engine::{Engine, EngineError, HostReplica};
use crate::train::data::corpus::Corpus;
use crate::train::data::shards::{TokenData, TokenShard};
use crate::train::data::windows::{self, SamplePosition, TokenText};
use crate::train::error::TrainError;
use crate::train::nn::cpu::threads::Threads;
#[cfg(feature = "nccl")]
use crate::train::nn::device::gpt::DeviceGpt;
#[cfg(feature = "nccl")]
use crate::train::nn::gpt::AttentionChoice;
use crate::train::nn::gpt::{Gpt, GptConfig, Sequences};
use crate::train::nn::model_id::{ModelId, TOKENS_OF_SHARDS};
use crate::train::options::{GptOptions, TrainOptions};
use crate::train::report::progress::Count;
use crate::train::sampling::{TokenChoice, sample_stream};
use crate::train::task::definition::{Extent, ItemUnit, Learner, Task};

/// Number of held-out sequences that are evaluated during the run.
const WINDOWS_SAMPLE: usize = 480;
/// Largest number of held-out sequences that are evaluated at the end: 4 MiB of text in blocks of 64.
const WINDOWS_MAX: usize = 64 * 1024;
/// Number of characters of the sample.
const SAMPLE_LEN: usize = 320;
/// How the characters of the sample are chosen.
const CHOICE: TokenChoice = TokenChoice { temperature: 0.8, top_k: None };

/// What a model learns to continue.
#[derive(Debug)]
enum LanguageData {
    /// A text whose bytes are tokens.
    Text(Box<Corpus>),
    /// Tokens of a vocabulary that is not known here.
    Shards(TokenData),
}

impl TokenText for LanguageData {
    fn token_count(&self) -> usize {
        match self {
            Self::Text(corpus) => corpus.token_count(),
            Self::Shards(shards) => shards.token_count(),
        }
    }

    fn read_tokens(&self, begin: usize, out: &mut [u32]) {
        match self {
            Self::Text(corpus) => corpus.read_tokens(begin, out),
            Self::Shards(shards) => shards.read_tokens(begin, out),
        }
    }
}

/// A text that a model learns.
#[derive(Debug)]
pub(crate) struct Language {
    data: LanguageData,
    config: GptConfig,
    #[cfg(feature = "nccl")]
    attention: AttentionChoice,
    threads: Threads,
    batch_size: usize,
}

impl Language {
    /// Opens the text or the shards.
    pub(crate) fn new(gpt: &GptOptions, options: &TrainOptions) -> Result<Self, TrainError> {
        let &GptOptions { block, ref data, vocabulary, .. } = gpt;
        let (data, vocabulary) = if data.first().is_some_and(|file| TokenShard::is_shard(file)) {
            let shards = TokenData::open(data)?;
            let vocabulary = shards.vocabulary_for(block, vocabulary)?;
            (LanguageData::Shards(shards), vocabulary)
        } else {
            let corpus = Corpus::open(data)?;
            corpus.check_block(block)?;
            let vocabulary = corpus.vocabulary().len();
            (LanguageData::Text(Box::new(corpus)), vocabulary)
        };
        let config = gpt.config(vocabulary);
        let (threads, batch_size) = (options.threads, options.batch_size.get());
        Ok(Self {
            data,
            config,
            #[cfg(feature = "nccl")]
            attention: gpt.attention,
            threads,
            batch_size,
        })
    }
}

impl Task for Language {
    type Batch = Sequences;

    fn title(&self) -> String {
        let GptConfig { architecture, vocabulary, block, layers, heads, width } = &self.config;
        let (layers, heads) = (Count(*layers, "layer"), Count(*heads, "head"));
        let data = match &self.data {
            LanguageData::Text(corpus) => {
                format!("{} bytes of text, {vocabulary} different bytes", corpus.len())
            }
            LanguageData::Shards(shards) => {
                format!("{} tokens, vocabulary {vocabulary}", shards.len())
            }
        };
        format!("{architecture} of {layers}, {heads}, width {width}, block {block}; {data}")
    }

    fn identity(&self) -> ModelId {
        let GptConfig { architecture, vocabulary, block, layers, heads, width } = self.config;
        let bytes = match &self.data {
            LanguageData::Text(corpus) => corpus.digest(),
            LanguageData::Shards(_) => TOKENS_OF_SHARDS.to_owned(),
        };
        ModelId::Gpt { architecture, layers, heads, width, block, vocabulary, bytes }
    }

    fn data_fingerprint(&self) -> Option<u64> {
        Some(windows::fingerprint(&self.data))
    }

    fn unit(&self) -> ItemUnit {
        ItemUnit { name: "tokens", count: self.batch_size * self.config.block }
    }

    fn batch(&self, position: SamplePosition) -> Sequences {
        windows::random_batch(&self.data, position, self.batch_size, self.config.block)
    }

    fn validation(&self, extent: Extent) -> Vec<(Sequences, usize)> {
        let windows_max = match extent {
            Extent::Sample => WINDOWS_SAMPLE,
            Extent::Whole => WINDOWS_MAX,
        };
        let block = self.config.block;
        let batches = windows::held_out_batches(&self.data, self.batch_size, block, windows_max);
        let count = |batch: Sequences| {
            let items = batch.inputs.len();
            (batch, items)
        };
        batches.into_iter().map(count).collect()
    }
}

/// A model that says how likely each token is to be the next one.
trait NextToken {
    /// Scores of all tokens after the last one of `inputs`.
    fn scores(&mut self, inputs: Sequences) -> Result<&mut [f32], EngineError>;
}

impl NextToken for Engine<HostReplica<Gpt<f32>>> {
    fn scores(&mut self, inputs: Sequences) -> Result<&mut [f32], EngineError> {
        self.eval(&inputs)?;
        Ok(self.model().next_token_scores())
    }
}

impl Language {
    /// Creates the model with its work space on the processor.
    pub(crate) fn new_model(&self) -> Gpt<f32> {
        Gpt::new(self.config, self.threads)
    }

    /// Creates the model on a device.
    #[cfg(feature = "nccl")]
    pub(crate) fn new_device_model(
        &self,
        device: Arc<dyn Device>,
        precision: Precision,
    ) -> Result<DeviceGpt, EngineError> {
        let model = DeviceGpt::new(device, self.config, precision.into())?;
        Ok(model.with_attention(self.attention)?)
    }

    /// A text that a model continues. What the tokens of shards stand for is in a vocabulary that the run does not
    /// have.
    fn continue_text(
        &self,
        model: &mut impl NextToken,
        seed: u64,
    ) -> Result<Option<String>, EngineError> {
        let LanguageData::Text(corpus) = &self.data else { return Ok(None) };
        let mut stream = sample_stream(seed);
        let mut tokens = vec![u32::from(corpus.token(b'\n').unwrap_or(0))];
        for _ in 0..SAMPLE_LEN {
            let inputs = tokens[tokens.len().saturating_sub(self.config.block)..].to_vec();
            let batch = Sequences { length: inputs.len(), inputs, targets: Vec::new() };
            tokens.push(CHOICE.choose(model.scores(batch)?, &mut stream));
        }
        let text = tokens[1..].iter().map(|&token| corpus.vocabulary()[token as usize]);
        Ok(Some(String::from_utf8_lossy(&text.collect::<Vec<u8>>()).into_owned()))
    }
}

impl Learner<Language> for HostReplica<Gpt<f32>> {
    fn sample(
        engine: &mut Engine<Self>,
        task: &Language,
        seed: u64,
    ) -> Result<Option<String>, EngineError> {
        task.continue_text(engine, seed)
    }
}

/// A device has no scores of single tokens: the text is continued on the processor, by the same weights.
#[cfg(feature = "nccl")]
impl Learner<Language> for DeviceReplica<DeviceGpt> {
    fn sample(
        engine: &mut Engine<Self>,
        task: &Language,
        seed: u64,
    ) -> Result<Option<String>, EngineError> {
        let (model, params) = (task.new_model(), engine.gather(Section::Weights)?);
        task.continue_text(&mut HostCopy { model, params }, seed)
    }
}

/// Model on the processor, with the weights of a device.
#[cfg(feature = "nccl")]
struct HostCopy {
    model: Gpt<f32>,
    params: Vec<f32>,
}

#[cfg(feature = "nccl")]
impl NextToken for HostCopy {
    fn scores(&mut self, inputs: Sequences) -> Result<&mut [f32], EngineError> {
        loss_of(&mut self.model, &self.params, &inputs).expect("a GPT names its units");
        Ok(self.model.next_token_scores())
    }
}

//! Options of a training run.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::runtime::engine::EngineConfig;
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::gpt::{AttentionChoice, GptArchitecture, GptConfig};

/// Options of a training run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    /// Model and data.
    pub model: ModelOptions,
    /// Number of samples of a micro-batch.
    pub batch_size: NonZeroUsize,
    /// Micro-batches, optimizer, rates, precision and sharding. Its seed is that of the initial values.
    pub engine: EngineConfig,
    /// Number of steps of the whole run.
    pub steps: u64,
    /// Seed of the batches and the sample.
    pub seed: u64,
    /// Number of threads of every worker.
    pub threads: Threads,
    /// Steps between evaluations on the held-out part.
    pub eval_every: Option<u64>,
    /// Checkpoints of the run.
    pub checkpoint: Option<CheckpointOptions>,
    /// Checkpoint to continue from, or a directory, whose newest checkpoint is used.
    pub resume: Option<PathBuf>,
    /// Whether the run starts from the beginning if `resume` is a directory without checkpoints.
    pub may_start_fresh: bool,
    /// Start of a job that is restarted after failures.
    pub start: Option<JobStart>,
    /// File for one JSON object per step.
    pub metrics: Option<PathBuf>,
    /// File for the loss curve as SVG.
    pub plot: Option<PathBuf>,
    /// Directories for the numbers of every step.
    pub scalars: Vec<ScalarOutput>,
}

/// Directory that receives the numbers of every step; created if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalarOutput {
    /// The directory. Several outputs can have the same one.
    pub dir: PathBuf,
    /// Format of the files.
    pub format: ScalarFormat,
    /// Which numbers are written, and under which names.
    pub names: ScalarNames,
}

/// Format of files of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScalarFormat {
    /// Event files, which TensorBoard shows.
    TensorBoard,
    /// A file for each scalar, with a row for each step.
    Csv,
}

/// Names and horizontal axis of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScalarNames {
    /// `train/loss`, `val/loss`, `seconds/forward` and others, over steps.
    Plain,
    /// `Train/Samples/lr` and the other two of DeepSpeed's monitors, over samples.
    DeepSpeed,
}

/// Start of a job that is restarted after failures: a restart continues from the last checkpoint of the job,
/// if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStart {
    /// Name of the job.
    pub job: String,
    /// Whether workers of this job have run before.
    pub is_restart: bool,
}

/// Model and data of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOptions {
    /// A GPT on a text.
    Gpt(GptOptions),
    /// An MLP classifier on synthetic samples, whose classes a random linear map decides.
    Mlp(MlpOptions),
}

/// Sizes of a GPT, except for those that its text decides, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GptOptions {
    /// Variant of the layers.
    pub architecture: GptArchitecture,
    /// Context length in tokens.
    pub block: usize,
    /// Number of blocks, each of attention and MLP.
    pub layers: usize,
    /// Number of attention heads of a block.
    pub heads: usize,
    /// Hidden size.
    pub width: usize,
    /// How a GPU computes attention.
    pub attention: AttentionChoice,
    /// Files of the text, or shards of tokens; empty for the embedded text.
    pub data: Vec<PathBuf>,
    /// Number of tokens of the vocabulary of shards; `None`: up to the largest token, rounded up to a
    /// multiple of 64.
    pub vocabulary: Option<usize>,
}

impl GptOptions {
    /// Sizes of the model, for a vocabulary of so many tokens.
    pub(crate) fn config(&self, vocabulary: usize) -> GptConfig {
        let &Self { architecture, block, layers, heads, width, .. } = self;
        GptConfig { architecture, vocabulary, block, layers, heads, width }
    }
}

/// Sizes of a classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MlpOptions {
    /// Number of features of a sample.
    pub inputs: usize,
    /// Number of hidden layers.
    pub layers: usize,
    /// Hidden size.
    pub width: usize,
    /// Number of classes.
    pub classes: usize,
}

impl MlpOptions {
    /// Numbers of features, from the inputs to the classes.
    pub(crate) fn features(&self) -> Vec<usize> {
        let hidden = std::iter::repeat_n(self.width, self.layers);
        std::iter::once(self.inputs).chain(hidden).chain([self.classes]).collect()
    }
}

/// Options of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Directory; created if it does not exist.
    pub dir: PathBuf,
    /// Steps between checkpoints; one is always written at the end.
    pub every: Option<u64>,
    /// Number of checkpoints to keep; `None`: all. Checkpoints of later steps belong to another run and are
    /// kept.
    pub keep: Option<NonZeroUsize>,
}

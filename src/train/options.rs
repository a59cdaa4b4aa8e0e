//! Options of a training run.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::adamw::AdamWOptions;
use super::schedule::Schedule;
use super::threads::Threads;

/// Options of a training run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    /// Model and data.
    pub model: ModelOptions,
    /// Samples of a micro-batch.
    pub batch_size: NonZeroUsize,
    /// Micro-batches of every worker in a step; a power of two if the bits are to equal those of
    /// another split.
    pub accumulate: NonZeroUsize,
    /// Steps and learning rates.
    pub schedule: Schedule,
    /// Settings of the optimizer.
    pub optimizer: AdamWOptions,
    /// The largest norm of a step's gradient.
    pub clip: Option<f64>,
    /// Seed of the initial values, the batches and the sample.
    pub seed: u64,
    /// Threads of every worker.
    pub threads: Threads,
    /// Steps between evaluations on the held-out part.
    pub eval_every: Option<u64>,
    /// Checkpoints of the run.
    pub checkpoint: Option<CheckpointOptions>,
    /// Checkpoint to continue from, or a directory, whose newest checkpoint is used.
    pub resume: Option<PathBuf>,
    /// Whether the run starts from the beginning if `resume` is a directory without checkpoints.
    pub may_begin: bool,
    /// Start of a job that is restarted after failures.
    pub start: Option<JobStart>,
    /// File for one JSON object per step.
    pub metrics: Option<PathBuf>,
    /// File for the loss curve as SVG.
    pub plot: Option<PathBuf>,
    /// Size of a gradient bucket in bytes; `None`: the library's default.
    pub bucket_bytes: Option<usize>,
}

/// One of several starts of a job. A later start continues from the last checkpoint of an earlier one, if
/// there is one.
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
    /// A classifier on samples whose classes an unknown linear map decides.
    Mlp(MlpOptions),
}

/// Sizes of a GPT, except for those that its text decides, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GptOptions {
    /// Tokens of a sequence.
    pub block: usize,
    /// Blocks of attention and network.
    pub layers: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Features of a token.
    pub width: usize,
    /// Files of the text; the embedded one if there are none.
    pub data: Vec<PathBuf>,
}

/// Sizes of a classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MlpOptions {
    /// Features of a sample.
    pub inputs: usize,
    /// Hidden layers.
    pub layers: usize,
    /// Features of a hidden layer.
    pub width: usize,
    /// Classes.
    pub classes: usize,
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

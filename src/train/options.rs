//! Options of a training run.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::adamw::AdamWOptions;
use super::schedule::Schedule;
use super::threads::Threads;

/// A training run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    /// What is trained, on what.
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
    /// Initial values, batches and the sample are functions of it.
    pub seed: u64,
    /// Threads of every worker.
    pub threads: Threads,
    /// Steps between evaluations on the held-out part.
    pub eval_every: Option<u64>,
    /// Where the run is kept.
    pub checkpoint: Option<CheckpointOptions>,
    /// A checkpoint, or a directory whose newest one is meant, to go on from.
    pub resume: Option<PathBuf>,
    /// Whether the run begins where `resume` is a directory without checkpoints, and passes over
    /// damaged ones in it.
    pub may_begin: bool,
    /// Of a job that is restarted after failures: which start this is.
    pub start: Option<JobStart>,
    /// A file that gets one JSON object a step.
    pub metrics: Option<PathBuf>,
    /// A file that gets the loss curve as SVG.
    pub plot: Option<PathBuf>,
    /// Bytes of gradients that leave together; the library's choice if there is none.
    pub bucket_bytes: Option<usize>,
}

/// One of several starts of a job. A later one goes on from the last checkpoint that an earlier one
/// has saved, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStart {
    /// Name of the job.
    pub job: String,
    /// Whether workers of this job have run before.
    pub is_restart: bool,
}

/// What is trained, on what.
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

/// Where and how often a run is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// The directory; made if it is not there.
    pub dir: PathBuf,
    /// Steps between checkpoints; there is always one at the end.
    pub every: Option<u64>,
    /// How many are kept; all of them if there is none. Those of later steps are another run's and
    /// stay.
    pub keep: Option<NonZeroUsize>,
}

//! The bundled worker program: small models, trained on the CPU with [`runtime`](crate::runtime)
//! (layer L5).
//!
//! [`train()`] runs a training as one worker of a group. It uses only the public API of the library, so it
//! is also an example of a complete worker.
//!
//! | file or folder | contents |
//! |---|---|
//! | `trainer`, `options`, `error` | the loop of steps |
//! | `nn` | models |
//! | `data`, `task` | data, and what a model is trained for |
//! | `tokenizer` | text to tokens and back, for files of tokens |
//! | `hugging_face` | GPT-2 as Hugging Face stores it: export and import |
//! | `saving`, `resume`, `earlier_steps` | checkpoints; the state before the first step; earlier runs |
//! | `report` | metrics, progress, the curve |
//! | `sampling` | text from a checkpoint |
//! | `step_profile` | where the time of a step goes on a GPU |
//! | `worker_memory`, `device_memory` | memory that a worker will need; a run that does not fit a GPU |

mod data;
#[cfg(feature = "nccl")]
mod device_memory;
mod earlier_steps;
pub(crate) mod error;
pub mod hugging_face;
mod nn;
mod options;
mod report;
pub(crate) mod resume;
mod sampling;
mod saved_training;
mod saving;
#[cfg(feature = "nccl")]
mod step_profile;
mod task;
mod tokenizer;
mod trainer;
mod worker_memory;

pub use data::corpus::{Corpus, CorpusError};
pub use data::shards::{
    ExistingFiles, ShardError, ShardOptions, ShardWriter, TokenData, TokenShard, TokenType,
    WrittenShard,
};
pub use data::text_file::{TextFile, TextFileError};
pub use data::windows::SamplePosition;
#[cfg(feature = "nccl")]
pub use device_memory::{DeviceMemoryError, MemoryCure, SettingNames};
pub use error::{ALL_DAMAGED_HELP, TrainError, UndamagedCheckpoint};
pub use nn::cpu::math::ModelFloat;
pub use nn::cpu::threads::Threads;
#[cfg(feature = "nccl")]
pub use nn::device::{gpt::DeviceGpt, mlp::DeviceMlp};
pub use nn::gpt::{AttentionChoice, Gpt, GptArchitecture, GptConfig, Sequences};
pub use nn::mlp::{Mlp, Samples};
pub use nn::model_id::{ModelId, TOKENS_OF_SHARDS};
pub use options::{
    CheckpointOptions, GptOptions, JobStart, MlpOptions, ModelOptions, ScalarFormat, ScalarNames,
    ScalarOutput, TrainOptions,
};
pub use report::metrics::has_last_record;
pub use report::plot::{Curve, show_svg};
pub use report::progress::{
    MemoryUse, PhaseSeconds, RunDevice, RunEnd, RunStart, StepReport, Summary, TrainEvent,
    more_steps, show_reached,
};
pub use report::skipped_steps::{SkipLevel, SkippedSteps};
pub use report::step_change::StepChange;
pub use sampling::{
    ModelVocabulary, SampleError, SampledToken, Sampler, TokenChoice, sample_stream,
};
pub use saved_training::{SavedTraining, find_undamaged, inspect, inspect_newest, newest_in};
#[cfg(feature = "nccl")]
pub use step_profile::{GPT2_124M, StepProfile, lacks_memory, profile_step};
pub use tokenizer::{Encoder, ParallelEncoder, Tokenizer, UnknownToken, VocabularyError};
pub use trainer::{TrainOutcome, train};
#[cfg(feature = "nccl")]
pub use trainer::{check_device_options, train_on};
pub use worker_memory::{WorkerMemory, activation_bytes};

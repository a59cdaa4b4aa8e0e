//! The bundled worker program: small models, trained on the CPU with [`runtime`](crate::runtime)
//! (layer L5).
//!
//! [`train()`] runs a training as one worker of a group. It uses only the public API of the library, so it
//! is also an example of a complete worker.
//!
//! | file or room | contents |
//! |---|---|
//! | `trainer`, `options`, `error` | the loop of steps |
//! | `nn` | models |
//! | `data`, `task` | data, and what a model is trained for |
//! | `checkpoint`, `saving`, `resume` | the file format; writing it; the state before the first step |
//! | `report` | metrics, progress, the curve |
//! | `memory_estimate` | memory that a worker will need |

mod checkpoint;
mod data;
pub(crate) mod error;
mod memory_estimate;
mod nn;
mod options;
mod report;
pub(crate) mod resume;
mod saving;
mod task;
mod trainer;

pub use checkpoint::{
    CheckpointError, CheckpointInfo, EXTENSION, SampleRange as SavedSamples, inspect,
    inspect_newest, newest_in,
};
pub use data::corpus::{Corpus, CorpusError, SamplePosition};
pub use error::TrainError;
pub use memory_estimate::worker_bytes;
pub use nn::cpu::math::ModelFloat;
pub use nn::cpu::threads::Threads;
pub use nn::gpt::{Gpt, GptConfig, Sequences};
pub use nn::mlp::{Mlp, Samples};
pub use nn::model_id::ModelId;
pub use options::{
    CheckpointOptions, GptOptions, JobStart, MlpOptions, ModelOptions, TrainOptions,
};
pub use report::plot::{Curve, show_svg};
pub use report::progress::{RunEnd, RunStart, StepReport, Summary, TrainEvent, more_steps};
pub use trainer::{TrainOutcome, train};

//! The bundled worker program: small models, trained on the CPU with [`runtime`](crate::runtime)
//! (layer L5).
//!
//! [`train()`] runs a training as one worker of a group. It uses only the public API of the library, so it
//! is also an example of a complete worker.

mod adamw;
mod attention;
mod checkpoint;
mod classification;
mod corpus;
mod float;
mod footprint;
mod gpt;
mod identity;
mod kernels;
mod language;
mod linear;
mod metrics;
mod mlp;
mod mmap;
mod model;
mod options;
mod plot;
mod progress;
mod rng;
mod schedule;
mod simd;
mod task;
mod threads;
mod trainer;

pub use adamw::{AdamW, AdamWOptions, Moments, clip_factor, gradient_norm};
pub use checkpoint::{
    CheckpointError, CheckpointInfo, EXTENSION, SampleRange as SavedSamples, inspect,
    inspect_newest, newest_in,
};
pub use corpus::{Corpus, CorpusError, SamplePosition};
pub use float::ModelFloat;
pub use footprint::worker_bytes;
pub use gpt::{Gpt, GptConfig, Sequences};
pub use identity::ModelId;
pub use mlp::{Mlp, Samples};
pub use model::{GradientSink, Model, Parameter, ParameterTable};
pub use options::{
    CheckpointOptions, GptOptions, JobStart, MlpOptions, ModelOptions, TrainOptions,
};
pub use plot::{Curve, show_svg};
pub use progress::{RunEnd, RunStart, StepReport, Summary, TrainEvent, more_steps};
pub use rng::RandomStream;
pub use schedule::Schedule;
pub use threads::Threads;
pub use trainer::{TrainError, TrainOutcome, train};

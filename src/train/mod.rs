//! The bundled worker program: small models, trained on the CPU through [`runtime`](crate::runtime).
//!
//! Nothing here reaches into the library's insides; a user could write all of it.

mod adamw;
mod attention;
mod corpus;
mod float;
mod gpt;
mod kernels;
mod linear;
mod mlp;
mod mmap;
mod model;
mod rng;
mod schedule;
mod simd;
mod threads;

pub use adamw::{AdamW, AdamWOptions, Moments, clip_factor, gradient_norm};
pub use corpus::{Corpus, CorpusError, Place};
pub use float::Float;
pub use gpt::{Gpt, GptConfig, Sequences};
pub use mlp::{Mlp, Samples};
pub use model::{GradientSink, Model, Parameter, ParameterTable};
pub use rng::Stream;
pub use schedule::Schedule;
pub use threads::Threads;

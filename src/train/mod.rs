//! The bundled worker program: small models, trained on the CPU through [`runtime`](crate::runtime).
//!
//! Nothing here reaches into the library's insides; a user could write all of it.

mod attention;
mod float;
mod gpt;
mod kernels;
mod linear;
mod mlp;
mod model;
mod rng;
mod simd;
mod threads;

pub use float::Float;
pub use gpt::{Gpt, GptConfig, Sequences};
pub use mlp::{Mlp, Samples};
pub use model::{Gradients, Model, Parameter, ParameterTable};
pub use rng::Stream;
pub use threads::Threads;

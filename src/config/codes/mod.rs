//! The codes of problems in configurations of a training engine (`G…`), in files of accelerate (`A…`) and in
//! `remuda.toml` (`O…`), each with its page of `remuda explain`.

mod accelerate;
mod explanations;
mod settings;
mod training;

pub use accelerate::*;
pub use explanations::EXPLANATIONS;
pub use settings::*;
pub use training::*;

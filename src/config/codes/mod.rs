//! The codes of problems in configurations of a training engine (`G…`) and in files of accelerate (`A…`),
//! each with its page of `remuda explain`.

mod accelerate;
mod explanations;
mod training;

pub use accelerate::*;
pub use explanations::EXPLANATIONS;
pub use training::*;

//! `remuda sample`: a trained GPT continues a text.

mod args;
mod codes;
mod problems;
mod run;
mod text;

pub(in crate::cli) use args::definition;
pub(in crate::cli) use codes::EXPLANATIONS;
pub(in crate::cli) use run::main;

//! `remuda tokenize`: texts to shards of tokens.

mod args;
mod codes;
mod problems;
mod run;

pub(in crate::cli) use args::definition;
pub(in crate::cli) use codes::EXPLANATIONS;
pub(in crate::cli::command) use problems::refuse_vocabulary;
pub(in crate::cli) use run::main;

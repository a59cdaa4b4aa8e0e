//! `remuda checkpoint …`: shows, verifies and exports checkpoints. Each subcommand has one file.

mod args;
mod codes;
mod export;
mod facts;
mod problems;
mod show;
mod verify;

pub(in crate::cli) use args::{definition, main};
pub(in crate::cli) use codes::EXPLANATIONS;
pub(in crate::cli::command) use problems::refuse as refuse_checkpoint;

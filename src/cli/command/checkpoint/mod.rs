//! `remuda checkpoint …`: shows, verifies, exports and imports checkpoints. Each subcommand has one file.

mod args;
mod codes;
mod export;
mod facts;
mod import;
mod problems;
mod show;
mod verify;

pub(in crate::cli) use args::{definition, main};
pub(in crate::cli) use codes::EXPLANATIONS;
pub(in crate::cli::command) use problems::{
    code_of as code_of_checkpoint_error, place_of as place_of_path, refuse as refuse_checkpoint,
};

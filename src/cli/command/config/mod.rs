//! `remuda config …`. Each subcommand has one file.

mod check;
pub(in crate::cli::command) mod file;
mod subcommands;

pub use subcommands::{ConfigArgs, run};
pub(in crate::cli) use subcommands::{definition, main};

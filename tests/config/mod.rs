//! Training configurations: golden files with the screen of `remuda config check`, files that a test creates,
//! and arbitrary bytes.
//!
//! `UPDATE_EXPECTED=1 cargo test --test program config::` rewrites the expectations.

mod bytes;
mod commands;
mod compat;
mod golden;
mod training;

use clap::Parser;
use remuda::cli::config::{ConfigArgs, run};
use remuda::cli::hostfile::CommandOutput;
use remuda::report::diagnostic::Paint;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `remuda config …` in this process.
#[track_caller]
pub(crate) fn config(words: &[&str]) -> CommandOutput {
    let words = std::iter::once("config").chain(words.iter().copied());
    let args = Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    run(&args.config, Paint::Plain)
}

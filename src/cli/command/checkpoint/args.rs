//! The subcommands of `remuda checkpoint`, and their selection.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::base::Status;
use crate::cli::command::checkpoint::{export, import, show, verify};
use crate::cli::command::parse::parse;
use crate::cli::error::CliError;

/// Show, verify, export and import the checkpoints of a training.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda checkpoint", bin_name = "remuda checkpoint", version)]
struct CheckpointCli {
    #[command(subcommand)]
    command: CheckpointCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum CheckpointCommand {
    /// Show tensors, files and state of a checkpoint.
    Show(show::CheckpointShowArgs),
    /// Check every byte of checkpoints, and report every damage.
    #[command(
        after_help = "Exit status: 0 no damage, 1 damage, 2 a checkpoint could not be checked."
    )]
    Verify(verify::VerifyArgs),
    /// Write the parameters of a checkpoint as safetensors, as Hugging Face reads them.
    Export(export::ExportArgs),
    /// Convert a GPT-2 of Hugging Face to a checkpoint, from which `remuda train` continues.
    Import(import::ImportArgs),
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    CheckpointCli::command()
}

/// Parses the command line, and runs the subcommand.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, typed) = parse::<CheckpointCli>(words)?;
    match &cli.command {
        CheckpointCommand::Show(args) => show::run(args, &typed),
        CheckpointCommand::Verify(args) => verify::run(args, &typed),
        CheckpointCommand::Export(args) => export::run(args, &typed),
        CheckpointCommand::Import(args) => import::run(args, &typed),
    }
}

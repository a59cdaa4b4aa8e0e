//! The subcommands of `remuda config`, and their selection.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use super::check;
use crate::base::Status;
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::output::CommandOutput;
use crate::cli::command::parse::parse;
use crate::cli::error::CliError;
use crate::report::diagnostic::Paint;
use crate::report::{Terminal, print, print_error};

/// Check training configurations of DeepSpeed and accelerate, and `remuda.toml`; nothing is started.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda config", bin_name = "remuda config", version)]
struct ConfigCli {
    #[command(flatten)]
    args: ConfigArgs,
}

/// Text after the list of options.
const STATUS_HELP: &str =
    "Exit status: 0 no finding, 1 errors or warnings, 2 a file could not be read.";

/// `remuda config`.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Report every error and warning of a `ds_config.json`, of accelerate's YAML or of `remuda.toml`, print the
    /// values that apply, and name the keys without effect.
    #[command(after_help = STATUS_HELP, rename_all = "snake_case")]
    Check(check::ConfigCheckArgs),
}

/// Runs `remuda config …` on files of DeepSpeed and accelerate. The options of `remuda.toml` are those of
/// commands, which only the program knows.
pub fn run(args: &ConfigArgs, paint: Paint) -> CommandOutput {
    run_with(args, &[], paint)
}

fn run_with(args: &ConfigArgs, entries: &[CommandEntry], paint: Paint) -> CommandOutput {
    match &args.command {
        ConfigCommand::Check(args) => check::run(args, entries, paint),
    }
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    ConfigCli::command()
}

/// Parses the command line, and prints the output of the subcommand.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<Status, CliError> {
    let (cli, _) = parse::<ConfigCli>(words)?;
    let output = run_with(&cli.args, entries, Terminal::detect().paint);
    print(&output.stdout).map_err(CliError::output)?;
    print_error(&output.stderr);
    Ok(output.status)
}

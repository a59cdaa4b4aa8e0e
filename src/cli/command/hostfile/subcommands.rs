//! The subcommands of `remuda hostfile`, and their selection.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use super::{check, convert, diff, fmt, show};
use crate::base::Status;
use crate::cli::command::output::CommandOutput;
use crate::cli::command::parse::parse;
use crate::cli::error::CliError;
use crate::report::diagnostic::Paint;
use crate::report::{Terminal, print, print_error};

/// Check, format, convert, show and compare hostfiles of any launcher; no host is contacted.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda hostfile", bin_name = "remuda hostfile", version)]
struct HostfileCli {
    #[command(flatten)]
    args: HostfileArgs,
}

/// Text after the list of options of `check`.
const CHECK_STATUS: &str =
    "Exit status: 0 no finding, 1 errors or warnings, 2 a file could not be read.";
/// The same of `fmt`.
const FMT_STATUS: &str = "Exit status: 0 success, also with warnings; 1 a file has errors (`--check`: \
    or is not formatted); 2 a file could not be read or written.";
/// The same of `convert`.
const CONVERT_STATUS: &str = "Exit status: 0 success, also with warnings; 1 the file has errors; 2 the \
    file could not be read.";
/// The same of `show`.
const SHOW_STATUS: &str = "Exit status: 0 success, also if a file has warnings; 1 a file or the selection \
    has errors, the set contains no host, or a word after `!` removes nothing; 2 a file or the set \
    could not be read.";

/// `remuda hostfile`.
#[derive(Clone, Debug, clap::Args)]
pub struct HostfileArgs {
    #[command(subcommand)]
    command: HostfileCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum HostfileCommand {
    /// Report every error and warning of hostfiles; no host is contacted.
    #[command(after_help = CHECK_STATUS, rename_all = "snake_case")]
    Check(check::CheckArgs),
    /// Format hostfiles; comments and the order of hosts are kept.
    #[command(after_help = FMT_STATUS)]
    Fmt(fmt::FmtArgs),
    /// Convert a hostfile to that of another tool.
    #[command(after_help = CONVERT_STATUS)]
    Convert(convert::ConvertArgs),
    /// Show hosts, slots and ranks of a file, a list or a set of hosts: `hosts & rack[1-3]`.
    #[command(after_help = SHOW_STATUS)]
    Show(show::ShowArgs),
    /// Show the differences between two hostfiles.
    #[command(
        after_help = "Exit status: 0 no difference, 1 differences, 2 a file could not be read."
    )]
    Diff(diff::DiffArgs),
}

/// Runs `remuda hostfile …`.
pub fn run(args: &HostfileArgs, paint: Paint) -> CommandOutput {
    match &args.command {
        HostfileCommand::Check(args) => check::run(args, paint),
        HostfileCommand::Fmt(args) => fmt::run(args, paint),
        HostfileCommand::Convert(args) => convert::run(args, paint),
        HostfileCommand::Show(args) => show::run(args, paint),
        HostfileCommand::Diff(args) => diff::run(args, paint),
    }
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    HostfileCli::command()
}

/// Parses the command line, and prints the output of the subcommand.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, _) = parse::<HostfileCli>(words)?;
    let output = run(&cli.args, Terminal::detect().paint);
    print(&output.stdout).map_err(CliError::output)?;
    print_error(&output.stderr);
    Ok(output.status)
}

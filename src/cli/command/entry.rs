//! An entry of the registry of commands, and the definition of the whole command line.

use std::ffi::OsString;

use clap::{Command, CommandFactory, Parser};

use crate::base::Status;
use crate::cli::args::color;
use crate::cli::error::CliError;

/// A command of remuda.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct CommandEntry {
    /// The word that selects the command.
    pub(in crate::cli) name: &'static str,
    /// `None`: only remuda itself starts the command.
    pub(in crate::cli) help: Option<CommandHelp>,
    /// Runs the command with the words after its name; all commands are given, because some of them
    /// describe the others.
    pub(in crate::cli) main: fn(Vec<OsString>, &[CommandEntry]) -> Result<Status, CliError>,
}

/// What help pages, completions and manual pages show of a command.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct CommandHelp {
    /// Description on the first page; successive commands with the same one share a line. `None`: the
    /// page does not list the command.
    pub(in crate::cli) summary: Option<&'static str>,
    /// Returns the definition of its options.
    pub(in crate::cli) definition: fn() -> Command,
}

/// A cluster job runner, command-line compatible with the DeepSpeed launcher
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda", version, disable_help_subcommand = true)]
struct RemudaCli;

/// Returns the definition of `remuda` without its commands.
pub(super) fn program_definition() -> Command {
    RemudaCli::command()
}

/// Returns `remuda` with all of its commands, in the order of `remuda --help`, for completions and
/// manuals. Command lines are never parsed with it, so that a script called `train` is still a
/// script.
pub(in crate::cli) fn full_definition(commands: &[CommandEntry]) -> Command {
    let shown = commands.iter().filter_map(|entry| Some((entry.name, entry.help?.definition)));
    let definitions = shown.map(|(name, definition)| color::with_option(definition().name(name)));
    program_definition().subcommands(definitions)
}

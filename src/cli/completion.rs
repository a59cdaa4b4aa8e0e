//! `remuda completion`: shell scripts that complete command lines of remuda.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::PossibleValue;
use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::{Shell, generate};

use super::definitions;
use super::error::CliError;
use crate::base::Status;
use crate::report::print;

/// Print a shell script that completes commands, options and their values.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda completion", bin_name = "remuda completion", version)]
struct CompletionCli {
    /// Shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

pub(super) fn definition() -> Command {
    CompletionCli::command()
}

/// Parses the command line, and prints the script.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, _) = super::parse::<CompletionCli>(words)?;
    let shell = match cli.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    let mut command = definitions::definition_for_completions();
    generate(shell, &mut command, "remuda", &mut script);
    if shell == Shell::Fish {
        script.extend(fish_arguments(&command).into_bytes());
    }
    print(&String::from_utf8_lossy(&script)).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Completions of fish for positional arguments, which the generator leaves out.
fn fish_arguments(command: &Command) -> String {
    let mut out = String::new();
    for command in command.get_subcommands() {
        let values: Vec<PossibleValue> =
            command.get_positionals().flat_map(Arg::get_possible_values).collect();
        if values.is_empty() {
            continue;
        }
        let words: Vec<String> = values.iter().map(fish_completion).collect();
        let (name, words) = (command.get_name(), words.join("\n"));
        let _ = writeln!(
            out,
            "complete -c remuda -n \"__fish_remuda_using_subcommand {name}\" -f -a \"{words}\""
        );
    }
    out
}

/// A completion of fish: a word, a tab, and its description. It is in single quotes inside double
/// quotes.
fn fish_completion(value: &PossibleValue) -> String {
    let description = value.get_help().map(ToString::to_string).unwrap_or_default();
    let description: String =
        description.chars().filter(|c| !matches!(c, '"' | '$' | '\\')).collect();
    format!("{}\\t'{}'", value.get_name(), description.replace('\'', "\\'"))
}

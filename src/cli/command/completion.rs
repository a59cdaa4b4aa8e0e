//! `remuda completion`: shell scripts that complete command lines of remuda.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::{PossibleValue, PossibleValuesParser, Str};
use clap::{Arg, Command, CommandFactory, Parser, ValueHint};
use clap_complete::{Shell, generate};

use crate::base::Status;
use crate::cli::args::values::launcher_values;
use crate::cli::command::entry::{CommandEntry, full_definition, program_definition};
use crate::cli::command::parse::parse;
use crate::cli::command::{bench, explain};
use crate::cli::error::CliError;
use crate::report::print;

/// Print a shell script that completes commands, options and their values.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda completion", bin_name = "remuda completion", version)]
struct CompletionCli {
    /// Shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

pub(in crate::cli) fn definition() -> Command {
    CompletionCli::command()
}

/// Parses the command line, and prints the script.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    commands: &[CommandEntry],
) -> Result<Status, CliError> {
    let (cli, _) = parse::<CompletionCli>(words)?;
    let shell = match cli.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    let mut command = definition_for_completions(commands);
    generate(shell, &mut command, "remuda", &mut script);
    if shell == Shell::Fish {
        script.extend(fish_arguments(&command).into_bytes());
    }
    print(&String::from_utf8_lossy(&script)).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Returns the definition for completions: without hidden options, and with the values that the
/// parsers of options accept.
fn definition_for_completions(commands: &[CommandEntry]) -> Command {
    let pages = manual_pages(&full_definition(commands));
    let with_pages = |arg: Arg| arg.value_parser(PossibleValuesParser::new(pages));
    let command = full_definition(commands)
        .mut_subcommands(|command| with_values(without_hidden_options(command)));
    command.mut_subcommand("man", |man| man.mut_arg("command", with_pages))
}

/// Removes the hidden options of a command. Command lines are not parsed with the result, so groups
/// and rules are left out.
fn without_hidden_options(command: Command) -> Command {
    if !command.get_arguments().any(Arg::is_hide_set) {
        return command;
    }
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    let copy = program_definition().name(command.get_name().to_owned()).args(args);
    match command.get_about() {
        Some(about) => copy.about(about.clone()),
        None => copy,
    }
}

fn with_values(command: Command) -> Command {
    command.mut_args(with_possible_values).mut_subcommands(with_values)
}

/// Adds the possible values of an option, or a hint about its kind of value.
fn with_possible_values(arg: Arg) -> Arg {
    if !arg.get_action().takes_values() || !arg.get_possible_values().is_empty() {
        return arg;
    }
    let words = possible_values(&arg);
    if !words.is_empty() {
        return arg.value_parser(PossibleValuesParser::new(words));
    }
    match value_name(&arg) {
        Some("FILE" | "FIRST" | "SECOND" | "SET" | "SCRIPT") => arg.value_hint(ValueHint::FilePath),
        Some("DIR") => arg.value_hint(ValueHint::DirPath),
        Some("CMD") => arg.value_hint(ValueHint::CommandName),
        // Numbers, times and names have no completions, and are not files.
        _ => arg.value_hint(ValueHint::Other),
    }
}

fn value_name(arg: &Arg) -> Option<&str> {
    arg.get_value_names()?.first().map(Str::as_str)
}

fn possible_values(arg: &Arg) -> Vec<PossibleValue> {
    let plain = |words: &[&'static str]| words.iter().copied().map(PossibleValue::new).collect();
    match (arg.get_id().as_str(), value_name(arg)) {
        (_, Some("CODE")) => code_values(arg.get_id() == "allow"),
        (_, Some("0|1")) => plain(&["0", "1"]),
        (_, Some("0-3")) => plain(&["0", "1", "2", "3"]),
        ("launcher", _) => plain(&launcher_values()),
        ("stdin", _) => plain(&["all", "none"]),
        (id, _) => plain(&bench::possible_values(id)),
    }
}

/// Codes with their descriptions, or only those of hostfiles.
fn code_values(of_hostfiles: bool) -> Vec<PossibleValue> {
    let all = explain::explanations().into_iter();
    let some = all.filter(|found| !of_hostfiles || found.code.starts_with('H'));
    some.map(|found| PossibleValue::new(found.code).help(found.title)).collect()
}

/// Commands and subcommands that have a manual page.
fn manual_pages(whole: &Command) -> Vec<PossibleValue> {
    let mut pages: Vec<PossibleValue> = Vec::new();
    for command in
        whole.get_subcommands().flat_map(|one| std::iter::once(one).chain(one.get_subcommands()))
    {
        let page = PossibleValue::new(command.get_name().to_owned());
        pages.push(match command.get_about() {
            Some(about) => page.help(about.clone()),
            None => page,
        });
    }
    pages
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

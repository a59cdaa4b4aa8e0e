//! The whole command line as one definition, from which completions and manuals are made. Command
//! lines are never parsed with it, so that a script called `train` is still a script.

use clap::builder::{PossibleValue, PossibleValuesParser, Str};
use clap::{Arg, Command, CommandFactory, Parser, ValueHint};

use super::run::RunArgs;
use super::values::LAUNCHERS;
use super::{HostfileCli, bench, color, completion, doctor, explain, k8s, launch, man, pod, ssh};

/// A cluster job runner, command-line compatible with the DeepSpeed launcher
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda", version, disable_help_subcommand = true)]
struct RemudaCli;

/// Returns `remuda` with all of its commands, in the order of `remuda --help`.
pub(super) fn full_definition() -> Command {
    let commands = [
        RunArgs::command().name("run"),
        pod::definition().name("pod"),
        k8s::definition().name("k8s"),
        launch::definition().name("launch"),
        #[cfg(feature = "train")]
        super::train::definition().name("train"),
        bench::definition().name("bench"),
        ssh::definition().name("ssh"),
        HostfileCli::command().name("hostfile"),
        doctor::definition().name("doctor"),
        explain::definition().name("explain"),
        completion::definition().name("completion"),
        man::definition().name("man"),
    ];
    RemudaCli::command().subcommands(commands.into_iter().map(color::with_option))
}

/// Returns the definition for completions: without hidden options, and with the values that the
/// parsers of options accept.
pub(super) fn definition_for_completions() -> Command {
    let pages = manual_pages(&full_definition());
    let with_pages = |arg: Arg| arg.value_parser(PossibleValuesParser::new(pages));
    let command =
        full_definition().mut_subcommands(|command| with_values(without_hidden_options(command)));
    command.mut_subcommand("man", |man| man.mut_arg("command", with_pages))
}

/// Removes the hidden options of a command. Command lines are not parsed with the result, so groups
/// and rules are left out.
fn without_hidden_options(command: Command) -> Command {
    if !command.get_arguments().any(Arg::is_hide_set) {
        return command;
    }
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    let copy = RemudaCli::command().name(command.get_name().to_owned()).args(args);
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
        ("launcher", _) => plain(&LAUNCHERS),
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

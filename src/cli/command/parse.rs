//! Parses the arguments of the commands that are not DeepSpeed's, and prints requested texts.

use std::ffi::OsString;

use clap::Parser;
use clap::builder::StyledStr;
use clap::error::ErrorKind;

use crate::base::{Findings, Status};
use crate::cli::args::color;
use crate::cli::command::entry::CommandEntry;
use crate::cli::error::CliError;
use crate::cli::help::{self, Length};
use crate::cli::line::{self, CommandLine, Flags, NotParsed};
use crate::cli::settings::with_settings;
use crate::report::diagnostic::Paint;
use crate::report::text::paint_message;
use crate::report::{Terminal, print_screen};

/// Parses the arguments of a command. Help and version are printed, and exit with 0.
pub(in crate::cli) fn parse<P: Parser>(words: Vec<OsString>) -> Result<(P, CommandLine), CliError> {
    parse_with_definition(P::command(), words)
}

/// Does the same for a command that reads `remuda.toml`.
pub(super) fn parse_with_settings<P: Parser>(
    command: clap::Command,
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<(P, CommandLine), CliError> {
    let mut definition = color::with_option(command.clone());
    let flags = Flags::of_line(&mut definition, &words);
    let name = definition.get_bin_name().unwrap_or("remuda").to_owned();
    let mut typed = CommandLine::new(&name, words);
    line::scan_options(&mut typed, &flags);
    let is_for_text = ["help", "version"].iter().any(|flag| typed.last(flag).is_some());
    let own = name.strip_prefix("remuda ").unwrap_or(&name);
    let made = if is_for_text { None } else { with_settings(&typed, own, entries)? };
    let plain = CommandLine::new(&name, typed.words);
    match made {
        None => parse_typed(command, plain),
        Some(made) => parse_made(&command, plain, made),
    }
}

/// Parses a line with options of a file. What is wrong with the typed words is said without these options.
fn parse_made<P: Parser>(
    command: &clap::Command,
    typed: CommandLine,
    made: CommandLine,
) -> Result<(P, CommandLine), CliError> {
    let refused = match parse_typed(command.clone(), made) {
        Err(CliError::Findings { status, findings }) => CliError::Findings { status, findings },
        parsed => return parsed,
    };
    if refused.status() != Status::Usage {
        return Err(refused);
    }
    let of_line = parse_typed::<P>(command.clone(), typed);
    Err(of_line.err().unwrap_or(refused))
}

/// Parses with a definition that differs a little from that of the type. If an option of one value
/// is given with several values, it is refused: these commands are not DeepSpeed's.
pub(super) fn parse_with_definition<P: Parser>(
    command: clap::Command,
    words: Vec<OsString>,
) -> Result<(P, CommandLine), CliError> {
    let name = command.get_bin_name().unwrap_or("remuda").to_owned();
    parse_typed(command, CommandLine::new(&name, words))
}

fn parse_typed<P: Parser>(
    command: clap::Command,
    mut typed: CommandLine,
) -> Result<(P, CommandLine), CliError> {
    let mut command = color::with_option(command).args_override_self(true).mut_args(|arg| {
        let takes = arg.get_action().takes_values();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    });
    let flags = Flags::of_line(&mut command, &typed.words);
    line::scan_options(&mut typed, &flags);
    line::refuse_words_after_h(&typed, &flags)?;
    typed.find_replaced(&flags);
    let name = OsString::from(&typed.program);
    let line = std::iter::once(name).chain(line::in_clap_spelling(&typed));
    let parsed = command.try_get_matches_from_mut(line).and_then(|found| {
        color::choose(&found);
        P::from_arg_matches(&found)
    });
    if parsed.is_err() {
        color::choose_typed(&typed);
    }
    match parsed {
        Ok(parsed) => {
            typed.refuse_replaced()?;
            Ok((parsed, typed))
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            Err(print_requested(&requested_help(&command, &typed)))
        }
        Err(error) => Err(match line::explain(&error, &flags, &typed) {
            NotParsed::Text(text) => print_requested(&text),
            NotParsed::Refused(refused) if typed.words.is_empty() => {
                bare_line(&refused.findings, command)
            }
            NotParsed::Refused(refused) => refused.into(),
        }),
    }
}

/// Returns the requested help page: of the command, or of its subcommand.
fn requested_help(command: &clap::Command, typed: &CommandLine) -> StyledStr {
    let words = typed.words.iter().filter_map(|word| word.to_str());
    let is_long = words.clone().any(|word| matches!(word, "--help" | "help"));
    let length = if is_long { Length::Long } else { Length::Short };
    let inner = words.fold(command, |command, word| match command.find_subcommand(word) {
        Some(inner) if word != "help" => inner,
        _ => command,
    });
    help::page(inner, length, help::width())
}

/// Returns the parsed options, unless the line requests only a text.
pub(super) fn into_args<A>(parsed: line::Parsed<A>) -> Result<(A, CommandLine), CliError> {
    match parsed {
        line::Parsed::Run(args, typed) => Ok((*args, typed)),
        line::Parsed::Text(text) => Err(print_requested(&text)),
    }
}

/// Returns the error of a line with nothing after the name of a command that needs more.
fn bare_line(findings: &Findings, definition: clap::Command) -> CliError {
    let [problem, ..] = &findings.diagnostics[..] else {
        unreachable!("a refused line has a diagnostic")
    };
    // Then the help lists them.
    let commands = problem.help.as_deref().filter(|_| definition.has_subcommands());
    let more = commands.map_or_else(String::new, |commands| format!("; {commands}"));
    bare(Status::Usage, (problem.code, &problem.message), definition, &more)
}

/// Refuses a line of a launcher with nothing after the name of the command: what to type is all that is to be said.
pub(super) fn refuse_bare(
    words: &[OsString],
    definition: impl FnOnce() -> clap::Command,
) -> Result<(), CliError> {
    if !words.is_empty() {
        return Ok(());
    }
    Err(bare(Status::Usage, (line::codes::NO_SCRIPT, line::NO_SCRIPT_MESSAGE), definition(), ""))
}

/// Returns the error of a bare line: the problem with its code, the usage, an example; `more` ends the help.
pub(super) fn bare(
    status: Status,
    (code, problem): (&str, &str),
    definition: clap::Command,
    more: &str,
) -> CliError {
    let name = definition.get_bin_name().unwrap_or(definition.get_name()).to_owned();
    let usage = help::usage(definition);
    let text = format!(
        "error[{code}]: {problem}\n{usage}help: `{name} -h` lists the most used options{more}\n"
    );
    CliError::Screen { status, text: paint_message(&text, Terminal::detect().paint) }
}

/// Prints a requested text; the error makes the program exit with 0.
pub(in crate::cli) fn print_requested(text: &StyledStr) -> CliError {
    let shown = match Terminal::detect().stdout_paint {
        Paint::Colour => text.ansi().to_string(),
        Paint::Plain => text.to_string(),
    };
    match print_screen(&help::fit(&shown, help::width())) {
        Ok(()) => CliError::Screen { status: Status::Success, text: String::new() },
        Err(error) => CliError::output(error),
    }
}

//! `remuda run`: a program on every slot of every host.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::base::Status;
use crate::cli::args::check;
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::parse::{into_args, refuse_bare};
use crate::cli::error::CliError;
use crate::cli::line::{self, CommandLine, RefusedLine};
use crate::cli::resolve;
use crate::cli::settings::{with_settings, with_settings_options, with_sources};
use crate::cli::start::{JobArgs, print_replacements, start_program};
use crate::report::{Terminal, print_message};

pub use crate::cli::args::RunArgs;

/// The command before its words.
const PROGRAM: &str = "remuda run";

/// Description of remuda if it was started by one of DeepSpeed's names.
const ABOUT_DEEPSPEED: &str = "\
Run a program on every slot of every host. This is remuda, which reads the command line of \
DeepSpeed's launcher, version 0.19.8; COMPAT.md lists the differences.";

/// Result of parsing a command line of `remuda run`.
pub type ParsedRun = line::Parsed<RunArgs>;

/// Parses the arguments of `program` (`remuda run`, `deepspeed`) with the rules of DeepSpeed's
/// launcher. Nothing outside the line is read.
pub fn parse(program: &'static str, words: Vec<OsString>) -> Result<ParsedRun, RefusedLine> {
    line::parse(definition_of(program), CommandLine::new(program, words))
}

/// Returns the definition of the command as `program`.
fn definition_of(program: &'static str) -> clap::Command {
    if program == PROGRAM {
        return definition();
    }
    RunArgs::command().name(program).bin_name(program).about(ABOUT_DEEPSPEED)
}

/// Parses the arguments of `remuda run` with the options that files and variables give.
pub(in crate::cli) fn parse_with_settings(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<ParsedRun, CliError> {
    let typed = CommandLine::new(PROGRAM, words);
    let made = match line::scan(definition(), typed.clone()) {
        Some(scanned) => with_settings(&scanned, "run", entries)?,
        None => None,
    };
    Ok(line::parse(definition(), made.unwrap_or(typed))?)
}

/// Parses a line of `remuda run` that was made from checked options of another launcher; it requests no text.
pub(in crate::cli) fn parse_made(made: CommandLine) -> Result<(RunArgs, CommandLine), RefusedLine> {
    match line::parse(RunArgs::command(), made)? {
        ParsedRun::Run(args, made) => Ok((*args, made)),
        ParsedRun::Text(_) => unreachable!("the words request no text"),
    }
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    with_settings_options(RunArgs::command())
}

/// Parses the command line, and runs the job.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<Status, CliError> {
    refuse_bare(&words, definition)?;
    let (args, typed) = into_args(parse_with_settings(words, entries)?)?;
    start(args, &typed).map_err(|error| with_sources(error, &typed))
}

/// Does the same under a name of DeepSpeed's launcher, which reads no `remuda.toml`.
pub(in crate::cli) fn main_as_deepspeed(
    program: &'static str,
    words: Vec<OsString>,
) -> Result<Status, CliError> {
    refuse_bare(&words, || definition_of(program))?;
    let (args, typed) = into_args(parse(program, words)?)?;
    start(args, &typed)
}

/// Runs the job of a line.
pub(in crate::cli) fn start(mut args: RunArgs, typed: &CommandLine) -> Result<Status, CliError> {
    check::run(&args, typed)?;
    args.elastic.set_restarts(&mut args.watch, typed);
    let terminal = Terminal::detect();
    print_replacements(&args.watch, typed, terminal);
    let mut cluster = resolve::resolve_cluster(&args.cluster, typed, terminal)?;
    resolve::check_script_is_no_host(&args.program, &cluster, typed)?;
    cluster.set_elastic(resolve::elastic(&args.elastic, &cluster, typed)?);
    check::stdin(&args.watch, cluster.workers(), typed)?;
    let notes = [
        resolve::unused_variables(&args.cluster.transport, &cluster),
        resolve::unused_ssh_options(typed, &cluster.transport),
    ];
    for note in notes.into_iter().flatten().filter(|_| args.watch.prints_progress()) {
        print_message(&note, terminal.paint);
    }
    let settings = typed.applied_settings();
    let job = JobArgs { watch: &args.watch, workers: &args.workers, settings, terminal };
    start_program(cluster, job, &args.program)
}

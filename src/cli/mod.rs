//! Command line: one file for each command; the only module that uses clap (layer L6).
//!
//! Each command has its own parser. Only this file checks the word that selects the command, so that
//! a script called `hostfile` is never read as a command.

mod agent;
pub mod args;
mod bench;
mod bundled;
mod check;
mod color;
mod completion;
mod definitions;
mod doctor;
mod error;
pub mod explain;
mod files;
mod first_word;
mod help;
pub mod hostfile;
mod k8s;
pub mod launch;
mod launcher_args;
pub mod line;
mod lower;
mod machine_codes;
mod man;
pub mod pod;
mod pod_codes;
pub mod run;
mod ssh;
pub mod ssh_args;
mod supervision;
#[cfg(feature = "train")]
mod train;
pub mod values;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::StyledStr;
use clap::error::ErrorKind;

use self::error::CliError;
use self::help::Length;
use self::line::{CommandLine, Flags, NotParsed, codes};
use crate::base::shell::quoted;
use crate::base::{Diagnostic, Status, show_typed};
use crate::os::fds;
use crate::report::diagnostic::Paint;
use crate::report::{self, Terminal, print, print_error};

/// The program name by which remuda was started. It has no subcommands here, so that a script
/// called `train` is a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvokedAs {
    /// Commands.
    Remuda,
    /// The launcher of DeepSpeed, by one of its names.
    DeepSpeed(&'static str),
}

impl InvokedAs {
    fn of(program: &OsStr) -> Self {
        const DEEPSPEED: [&str; 3] = ["deepspeed", "ds", "deepspeed.pt"];
        let name = Path::new(program).file_name().unwrap_or_default();
        DEEPSPEED.into_iter().find(|known| name == *known).map_or(Self::Remuda, Self::DeepSpeed)
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    // A file that is opened as descriptor 0, 1 or 2 would be used as a standard stream.
    if fds::fill_stdio().is_err() {
        return Status::OsLimit.into();
    }
    report::start_log();
    report::install_panic_hook("remuda");
    let mut words = std::env::args_os();
    let invoked_as = InvokedAs::of(&words.next().unwrap_or_default());
    let words = words.collect();
    let dispatched = std::panic::catch_unwind(|| match invoked_as {
        InvokedAs::Remuda => dispatch(words),
        InvokedAs::DeepSpeed(name) => run::main(name, words),
    });
    match dispatched {
        Ok(Ok(status)) => status.into(),
        Ok(Err(error)) => {
            print_error(&error.screen(Terminal::detect().paint));
            error.status().into()
        }
        // The panic hook has reported the place and the cause.
        Err(_) => Status::Bug.into(),
    }
}

fn dispatch(words: Vec<OsString>) -> Result<Status, CliError> {
    let Some((command, rest)) = words.split_first() else { return Err(no_command_given()) };
    let rest = rest.to_vec();
    match command.to_str() {
        Some("launch") => launch::main(rest),
        Some("pod") => pod::main(rest),
        Some("k8s") => k8s::main(rest),
        Some("explain") => explain::main(rest),
        Some("ssh") => ssh::main(rest),
        Some("run") => run::main("remuda run", rest),
        #[cfg(feature = "train")]
        Some("train") => train::main(rest),
        #[cfg(feature = "train")]
        Some(train::WORKER_COMMAND) => train::worker_main(rest),
        Some("bench") => bench::main(rest),
        Some(bench::WORKER_COMMAND) => bench::worker_main(rest),
        Some("hostfile") => run_hostfile(rest),
        Some("doctor") => doctor::main(rest),
        Some("completion") => completion::main(rest),
        Some("man") => man::main(rest),
        Some("agent") => agent::main(&rest),
        Some("help") if !rest.is_empty() => {
            dispatch(rest.into_iter().chain([OsString::from("--help")]).collect())
        }
        Some("help" | "--help" | "-h") => {
            Err(print_requested(&help::front_page(help::width()).into()))
        }
        Some("--version" | "-V") => {
            print(concat!("remuda ", env!("CARGO_PKG_VERSION"), "\n")).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        _ => Err(unknown_command(words)),
    }
}

fn no_command_given() -> CliError {
    let typed = CommandLine::new("remuda", Vec::new());
    let refused = typed.refuse(&[typed.end_span()], |spans| {
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], "a command is missing")
            .label("expected here")
            .help("`remuda --help` lists the commands; `remuda run SCRIPT` runs a script")
    });
    refused.into()
}

fn unknown_command(words: Vec<OsString>) -> CliError {
    const COMMANDS: [&str; 12] = [
        "run",
        "pod",
        "k8s",
        "launch",
        "train",
        "bench",
        "ssh",
        "hostfile",
        "doctor",
        "explain",
        "completion",
        "man",
    ];
    let typed = CommandLine::new("remuda", words);
    let word = typed.words[0].to_string_lossy();
    let help = match crate::pool::nearest(&word, COMMANDS) {
        _ if is_line_of_run(&word, &typed.words) => {
            let line: Vec<String> = typed.words.iter().map(quoted).collect();
            format!("did you mean `remuda run {}`?", line.join(" "))
        }
        Some(near) => format!("did you mean `remuda {near}`?"),
        None => "`remuda --help` lists the commands; `remuda run SCRIPT` runs a script".to_owned(),
    };
    let refused = typed.refuse(&[typed.word_span(0)], |spans| {
        let message = format!("there is no command `{}`", show_typed(&word));
        Diagnostic::error(codes::UNKNOWN_COMMAND, spans[0], message).label("unknown").help(help)
    });
    refused.into()
}

/// Whether `run` was left out: `remuda -n 2 train.py`, `remuda train.py`.
fn is_line_of_run(first: &str, words: &[OsString]) -> bool {
    let is_script = || {
        Path::new(first).extension().is_some_and(|found| found == "py")
            || Path::new(first).is_file()
    };
    let parses = || matches!(run::parse("remuda run", words.to_vec()), Ok(run::ParsedRun::Run(..)));
    (first.starts_with('-') || is_script()) && parses()
}

/// Check, format, convert, show and compare hostfiles of any launcher; no host is contacted.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda hostfile", bin_name = "remuda hostfile", version)]
struct HostfileCli {
    #[command(flatten)]
    args: hostfile::HostfileArgs,
}

fn run_hostfile(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, _) = parse::<HostfileCli>(words)?;
    let outcome = hostfile::run(&cli.args, Terminal::detect().paint);
    print(&outcome.stdout).map_err(CliError::output)?;
    print_error(&outcome.stderr);
    Ok(outcome.status)
}

/// Parses the arguments of a command. Help and version are printed, and exit with 0.
fn parse<P: Parser>(words: Vec<OsString>) -> Result<(P, CommandLine), CliError> {
    parse_with_definition(P::command(), words)
}

/// Parses with a definition that differs a little from that of the type. If an option of one value
/// is given with several values, it is refused: these commands are not DeepSpeed's.
fn parse_with_definition<P: Parser>(
    command: clap::Command,
    words: Vec<OsString>,
) -> Result<(P, CommandLine), CliError> {
    let mut command = color::with_option(command).args_override_self(true).mut_args(|arg| {
        let takes = arg.get_action().takes_values();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    });
    let flags = Flags::of_line(&mut command, &words);
    let name = command.get_bin_name().unwrap_or("remuda").to_owned();
    let mut typed = CommandLine::new(&name, words);
    line::scan_options(&mut typed, &flags);
    line::refuse_words_after_h(&typed, &flags)?;
    typed.find_replaced(&flags);
    let line = std::iter::once(OsString::from(name)).chain(line::in_clap_spelling(&typed));
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
fn into_args<A>(parsed: line::Parsed<A>) -> Result<(A, CommandLine), CliError> {
    match parsed {
        line::Parsed::Run(args, typed) => Ok((*args, typed)),
        line::Parsed::Text(text) => Err(print_requested(&text)),
    }
}

/// Prints a requested text; the error makes the program exit with 0.
fn print_requested(text: &StyledStr) -> CliError {
    let shown = match Terminal::detect().stdout_paint {
        Paint::Colour => text.ansi().to_string(),
        Paint::Plain => text.to_string(),
    };
    match print(&help::fit(&shown, help::width())) {
        Ok(()) => CliError::Screen { status: Status::Success, text: String::new() },
        Err(error) => CliError::output(error),
    }
}

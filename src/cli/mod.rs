//! L6: texts in, work handed on. The only module that knows clap; one file per command.
//!
//! Each command has its own parser. The word that chooses it is looked at here and nowhere else, so
//! that a script called `hostfile` never becomes a command.

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

use self::error::CliError;
use self::line::{Flags, NotParsed, Typed, codes};
use crate::base::{Diagnostic, Status};
use crate::os::fds;
use crate::report::diagnostic::Paint;
use crate::report::{self, Terminal, print, print_error};

const HELP: &str = "\
remuda: a cluster job runner, command-line compatible with the DeepSpeed launcher

Usage: remuda COMMAND [OPTIONS]

Commands:
  run       Run a program on every slot of every host
  pod       Take part in a job as the node that this pod is, without ssh
  k8s       Print what starts a job of pods on Kubernetes
  launch    Start the workers of one node, as DeepSpeed's launcher of a node is called
  train     Train a small GPT or MLP with the bundled data-parallel runtime
  bench     Measure collectives between all ranks, in the terms of nccl-tests
  ssh       Run a command once on every host, and gather what it says
  hostfile  Check, mend, show and convert hostfiles
  doctor    Examine every host of a hostfile as it really is
  explain   Tell what a code such as `H003` means
  completion, man   Print what a shell needs to complete lines, or a page of the manual

`remuda COMMAND --help` says more about one.
";

/// What the program is called as. A face has no commands, so that a script called `train` is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Face {
    /// Commands.
    Remuda,
    /// The launcher of DeepSpeed, by one of its names.
    DeepSpeed(&'static str),
}

impl Face {
    fn of(program: &OsStr) -> Self {
        const DEEPSPEED: [&str; 3] = ["deepspeed", "ds", "deepspeed.pt"];
        let name = Path::new(program).file_name().unwrap_or_default();
        DEEPSPEED.into_iter().find(|face| name == *face).map_or(Self::Remuda, Self::DeepSpeed)
    }
}

/// The program.
pub fn main() -> ExitCode {
    // A descriptor that happened to be 0, 1 or 2 would be taken for a standard one.
    if fds::fill_stdio().is_err() {
        return Status::OsLimit.into();
    }
    report::start_log();
    report::explain_panics("remuda");
    let mut words = std::env::args_os();
    let face = Face::of(&words.next().unwrap_or_default());
    let words = words.collect();
    let dispatched = std::panic::catch_unwind(|| match face {
        Face::Remuda => dispatch(words),
        Face::DeepSpeed(name) => run::main(name, words),
    });
    match dispatched {
        Ok(Ok(status)) => status.into(),
        Ok(Err(error)) => {
            print_error(&error.screen(Terminal::look().paint));
            error.status().into()
        }
        // The hook has said where and why.
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
        Some("hostfile") => check_hostfile(rest),
        Some("doctor") => doctor::main(rest),
        Some("completion") => completion::main(rest),
        Some("man") => man::main(rest),
        Some("agent") => agent::main(&rest),
        Some("help") if !rest.is_empty() => {
            dispatch(vec![rest[0].clone(), OsString::from("--help")])
        }
        Some("help" | "--help" | "-h") => {
            print(HELP).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        Some("--version" | "-V") => {
            print(concat!("remuda ", env!("CARGO_PKG_VERSION"), "\n")).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        _ => Err(unknown_command(words)),
    }
}

fn no_command_given() -> CliError {
    let typed = Typed::new("remuda", Vec::new());
    let refused = typed.refuse(&[typed.end()], |spans| {
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], "a command is missing")
            .label("expected here")
            .help("`remuda --help` lists them; `remuda run SCRIPT` runs a script")
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
    let typed = Typed::new("remuda", words);
    let word = typed.words[0].to_string_lossy();
    let help = match crate::pool::nearest(&word, COMMANDS) {
        Some(near) => format!("did you mean `remuda {near}`?"),
        None => "`remuda --help` lists the commands; `remuda run SCRIPT` runs a script".to_owned(),
    };
    let refused = typed.refuse(&[typed.word(0)], |spans| {
        let message = format!("there is no command `{}`", word.escape_debug());
        Diagnostic::error(codes::UNKNOWN_COMMAND, spans[0], message).label("unknown").help(help)
    });
    refused.into()
}

/// Check, mend, show and convert hostfiles of any launcher; nothing is contacted or started.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda hostfile", bin_name = "remuda hostfile", version)]
struct HostfileFace {
    #[command(flatten)]
    args: hostfile::HostfileArgs,
}

fn check_hostfile(words: Vec<OsString>) -> Result<Status, CliError> {
    let (face, _) = parse::<HostfileFace>(words)?;
    let outcome = hostfile::run(&face.args, Terminal::look().paint);
    print(&outcome.stdout).map_err(CliError::output)?;
    print_error(&outcome.stderr);
    Ok(outcome.status)
}

/// Parses the words behind a command. Help and version are printed and end with 0.
fn parse<P: Parser>(words: Vec<OsString>) -> Result<(P, Typed), CliError> {
    parse_as(P::command(), words)
}

/// Parses by a definition that is a little different from the type's.
fn parse_as<P: Parser>(
    command: clap::Command,
    words: Vec<OsString>,
) -> Result<(P, Typed), CliError> {
    let mut command = color::with_option(command).mut_args(|arg| {
        let takes = arg.get_action().takes_values();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    });
    let flags = Flags::of(&mut command);
    let name = command.get_bin_name().unwrap_or("remuda").to_owned();
    let mut typed = Typed::new(&name, words);
    line::scan(&mut typed, &flags);
    let line = std::iter::once(OsString::from(name)).chain(line::respelt(&typed));
    let parsed = command.try_get_matches_from(line).and_then(|found| {
        color::choose(&found);
        P::from_arg_matches(&found)
    });
    if parsed.is_err() {
        color::choose_typed(&typed);
    }
    match parsed {
        Ok(parsed) => Ok((parsed, typed)),
        Err(error) => Err(match line::explain(&error, &flags, &typed) {
            NotParsed::Asked(text) => asked(&text),
            NotParsed::Refused(refused) => refused.into(),
        }),
    }
}

/// What a line wants done, if it does not only ask for a text.
fn to_run<A>(parsed: line::Parsed<A>) -> Result<(A, Typed), CliError> {
    match parsed {
        line::Parsed::Run(args, typed) => Ok((*args, typed)),
        line::Parsed::Asked(text) => Err(asked(&text)),
    }
}

/// Prints a text that was asked for; the error ends the program with 0.
fn asked(text: &StyledStr) -> CliError {
    let shown = match Terminal::look().stdout_paint {
        Paint::Colour => text.ansi().to_string(),
        Paint::Plain => text.to_string(),
    };
    match print(&shown) {
        Ok(()) => CliError::Screen { status: Status::Success, text: String::new() },
        Err(error) => CliError::output(error),
    }
}

//! L6: texts in, work handed on. The only module that knows clap; one file per command.
//!
//! Each command has its own parser. The word that chooses it is looked at here and nowhere else, so
//! that a script called `hostfile` never becomes a command.

mod agent;
mod args;
mod error;
pub mod hostfile;
mod lower;
mod run;
mod ssh_args;
#[cfg(feature = "train")]
mod train;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::error::CliError;
use crate::base::Status;
use crate::os::fds;
use crate::report::{self, Terminal, print, print_error};

const HELP: &str = "\
remuda: a cluster job runner, command-line compatible with the DeepSpeed launcher

Usage: remuda COMMAND [OPTIONS]

Commands:
  run       Run a program on every slot of every host
  train     Train a small GPT or MLP with the bundled data-parallel runtime
  hostfile  Check hostfiles

`remuda COMMAND --help` says more about one.
";

/// The program.
pub fn main() -> ExitCode {
    // A descriptor that happened to be 0, 1 or 2 would be taken for a standard one.
    if fds::fill_stdio().is_err() {
        return Status::OsLimit.into();
    }
    report::start_log();
    let dispatched = std::panic::catch_unwind(|| dispatch(std::env::args_os().skip(1).collect()));
    match dispatched {
        Ok(Ok(status)) => status.into(),
        Ok(Err(error)) => {
            print_error(&error.screen());
            error.status().into()
        }
        // The hook has said where and why.
        Err(_) => Status::Bug.into(),
    }
}

fn dispatch(words: Vec<OsString>) -> Result<Status, CliError> {
    let mut rest = words.into_iter();
    let command = rest.next().unwrap_or_default();
    let rest: Vec<OsString> = rest.collect();
    match command.to_str() {
        Some("run") => run::main(rest),
        #[cfg(feature = "train")]
        Some("train") => train::main(rest),
        #[cfg(feature = "train")]
        Some(train::WORKER_COMMAND) => train::worker_main(rest),
        Some("hostfile") => check_hostfile(rest),
        Some("agent") => agent::main(&rest),
        Some("help" | "--help" | "-h") => {
            print(HELP).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        Some("--version" | "-V") => {
            print(concat!("remuda ", env!("CARGO_PKG_VERSION"), "\n")).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        Some("") => Err(CliError::usage("no command was given").help("`remuda --help` lists them")),
        _ => Err(CliError::usage(format!("there is no command `{}`", command.display()))
            .help("`remuda --help` lists the commands; `remuda run SCRIPT` runs a script")),
    }
}

/// `remuda hostfile …`.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda hostfile", bin_name = "remuda hostfile", version)]
struct HostfileFace {
    #[command(flatten)]
    args: hostfile::HostfileArgs,
}

fn check_hostfile(words: Vec<OsString>) -> Result<Status, CliError> {
    let face = parse::<HostfileFace>(words)?;
    let outcome = hostfile::run(&face.args, Terminal::look().paint);
    print(&outcome.stdout).map_err(CliError::output)?;
    print_error(&outcome.stderr);
    Ok(outcome.status)
}

/// Parses the words behind a command. Help and version are printed and end with 0.
fn parse<P: Parser>(words: Vec<OsString>) -> Result<P, CliError> {
    let name = P::command().get_bin_name().unwrap_or("remuda").to_owned();
    P::try_parse_from(std::iter::once(OsString::from(name)).chain(words)).map_err(|error| {
        let text = error.render();
        if error.use_stderr() {
            return CliError::Screen { status: Status::Usage, text: text.to_string() };
        }
        match print(&text.to_string()) {
            Ok(()) => CliError::Screen { status: Status::Success, text: String::new() },
            Err(error) => CliError::output(error),
        }
    })
}

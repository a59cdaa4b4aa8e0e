//! `remuda torchrun` and `remuda torch.distributed.launch`: command lines of torch's launchers.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::base::Status;
use crate::cli::command::parse::{into_args, refuse_bare};
use crate::cli::error::CliError;
use crate::cli::face::torchrun::job::{self, TorchLauncher};
use crate::cli::line::{self, CommandLine, OriginalLauncher, Parsed, RefusedLine};
use crate::cli::start::launcher_flags;

pub use crate::cli::face::torchrun::args::TorchrunArgs;

/// Name of the older launcher of torch, as a command of remuda.
const DISTRIBUTED_LAUNCH: &str = "remuda torch.distributed.launch";
/// Its description.
const ABOUT_DISTRIBUTED_LAUNCH: &str = "\
Run a script as `python -m torch.distributed.launch` does: with the options of torchrun, and with \
`--local-rank=N` as an argument of the script. With `-H` one command starts all nodes, over ssh; without \
it, start each node with its own command line.";

/// Parses the arguments of `program` with the options of torchrun. Nothing outside the line is read.
pub fn parse(
    program: &'static str,
    words: Vec<OsString>,
) -> Result<Parsed<TorchrunArgs>, RefusedLine> {
    let typed = CommandLine::new(program, words);
    line::parse_line_of(OriginalLauncher::Torchrun, definition_of(program), typed)
}

/// Returns the definition of the command as `program`.
fn definition_of(program: &'static str) -> clap::Command {
    let definition =
        if program == DISTRIBUTED_LAUNCH { distributed_launch_definition() } else { definition() };
    definition.name(program).bin_name(program)
}

/// Parses a line of torchrun that was made from checked options of another launcher; it requests no text.
pub(in crate::cli) fn parse_made(
    made: CommandLine,
) -> Result<(TorchrunArgs, CommandLine), RefusedLine> {
    let command = definition().name("remuda torchrun").bin_name("remuda torchrun");
    match line::parse_line_of(OriginalLauncher::Torchrun, command, made)? {
        Parsed::Run(args, made) => Ok((*args, made)),
        Parsed::Text(_) => unreachable!("the words request no text"),
    }
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    TorchrunArgs::command()
}

/// Returns the definition of `torch.distributed.launch`.
pub(in crate::cli) fn distributed_launch_definition() -> clap::Command {
    let definition = TorchrunArgs::command().about(ABOUT_DISTRIBUTED_LAUNCH);
    definition.mut_arg("use_env", |arg| arg.hide(false))
}

/// Parses the command line, and runs the job.
pub(in crate::cli) fn main(
    program: &'static str,
    launcher: TorchLauncher,
    words: Vec<OsString>,
) -> Result<Status, CliError> {
    refuse_bare(&words, || definition_of(program))?;
    let (args, typed) = into_args(parse(program, words)?)?;
    job::start(&args, &typed, launcher, &[], || launcher_flags(&definition()))
}

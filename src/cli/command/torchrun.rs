//! `remuda torchrun` and `remuda torch.distributed.launch`: command lines of torch's launchers.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::base::Status;
use crate::cli::command::parse::into_args;
use crate::cli::error::CliError;
use crate::cli::face::torchrun::job::{self, TorchLauncher};
use crate::cli::line::{self, CommandLine, OriginalLauncher, Parsed, RefusedLine};

pub use crate::cli::face::torchrun::args::TorchrunArgs;

/// Parses the arguments of `program` with the options of torchrun. Nothing outside the line is read.
pub fn parse(
    program: &'static str,
    words: Vec<OsString>,
) -> Result<Parsed<TorchrunArgs>, RefusedLine> {
    let command = TorchrunArgs::command().name(program).bin_name(program);
    line::parse_line_of(OriginalLauncher::Torchrun, command, CommandLine::new(program, words))
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    TorchrunArgs::command()
}

/// Parses the command line, and runs the job.
pub(in crate::cli) fn main(
    program: &'static str,
    launcher: TorchLauncher,
    words: Vec<OsString>,
) -> Result<Status, CliError> {
    let (args, typed) = into_args(parse(program, words)?)?;
    job::start(&args, &typed, launcher, &[])
}

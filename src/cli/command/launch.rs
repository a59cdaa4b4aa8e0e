//! `remuda launch`: one node of a job, with the options of DeepSpeed's `deepspeed.launcher.launch`.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::base::Status;
use crate::cli::args::{NodeArgs, NodeWorkerArgs, ProgramArgs, WatchArgs, check};
use crate::cli::command::parse::{into_args, refuse_bare};
use crate::cli::error::CliError;
use crate::cli::line::{self, CommandLine, Parsed, RefusedLine};
use crate::cli::resolve;
use crate::cli::start::{JobArgs, print_replacements, start_program};
use crate::report::Terminal;

/// Name of the command in messages.
const PROGRAM: &str = "remuda launch";

/// Start the workers of one node of a job, as `deepspeed.launcher.launch` does. Run the same
/// command line on every node, each with its `--node_rank`. The nodes are not connected to each other;
/// `remuda run` starts and monitors all of them.
#[derive(Clone, Debug, Parser)]
#[command(name = PROGRAM, bin_name = PROGRAM, version, args_override_self = true)]
pub struct LaunchArgs {
    /// Hosts of the job, and the node that is started.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Script and arguments.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Processors and log files of the workers.
    #[command(flatten)]
    pub workers: NodeWorkerArgs,
    /// Options of supervision and output.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// Parses the arguments of `remuda launch` in the same way as DeepSpeed's launcher of one node.
pub fn parse(words: Vec<OsString>) -> Result<Parsed<LaunchArgs>, RefusedLine> {
    line::parse(LaunchArgs::command(), CommandLine::new(PROGRAM, words))
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    LaunchArgs::command()
}

/// Parses the command line, and runs the node.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    refuse_bare(&words, definition)?;
    let (args, typed) = into_args(parse(words)?)?;
    check::program(&args.program, &typed)?;
    check::watch(&args.watch, &typed)?;
    print_replacements(&args.watch, &typed, Terminal::detect());
    let cluster = resolve::node_of_world(&args.node, &typed)?;
    check::stdin(&args.watch, cluster.workers(), &typed)?;
    let (workers, terminal) = (args.workers.into(), Terminal::detect());
    let job = JobArgs { watch: &args.watch, workers: &workers, settings: None, terminal };
    start_program(cluster, job, &args.program)
}

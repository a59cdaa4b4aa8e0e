//! `remuda train`: the bundled trainer as a job.

mod args;
mod check;
mod codes;
mod worker;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use self::args::TrainArgs;
use self::check::Workers;
use super::args::{ClusterArgs, WatchArgs, WorkerArgs};
use super::bundled;
use super::error::CliError;
use super::lower::{self, PrintedRanks};
use super::run::{self, WorkerProgram};
use crate::base::Status;
use crate::launch::{CauseRule, Transport};
use crate::report::{Terminal, print_message};
use crate::train::more_steps;

pub(super) use self::codes::EXPLANATIONS;
pub(super) use self::worker::worker_main;

/// Name of the command that makes this executable a worker.
pub(super) const WORKER_COMMAND: &str = "train-worker";

/// Train a small GPT or MLP on every slot with the bundled data-parallel runtime.
///
/// The same seed gives the same model, bit for bit, whether W workers accumulate A micro-batches
/// each or one worker accumulates W × A.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda train", bin_name = "remuda train", version, args_override_self = true)]
struct TrainCli {
    #[command(flatten)]
    train: TrainArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Returns the definition of the command.
pub(super) fn definition() -> clap::Command {
    TrainCli::command()
}

/// Parses the command line, and starts this executable as the worker of every slot.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    if bundled::is_worker() {
        return worker_main(words);
    }
    let (mut cli, typed) = super::parse::<TrainCli>(words)?;
    super::check::cluster(&cli.cluster, &typed)?;
    super::check::connected(&cli.cluster, &typed)?;
    super::check::watch(&cli.watch, &typed)?;
    let terminal = Terminal::detect();
    let note = "remuda train has no GPU kernels yet";
    bundled::use_cpu_slots(&mut cli.cluster, note, terminal);
    let cluster = lower::resolve_cluster(&cli.cluster, &typed, terminal)?;
    super::check::stdin(&cli.watch, cluster.workers(), &typed)?;
    // Errors are reported once here, and not by every worker.
    let workers = match cluster.transport {
        Transport::Local => Workers::Local(cluster.workers()),
        Transport::Ssh(_) | Transport::Dial(_) => Workers::Remote(cluster.workers()),
    };
    if let Some(saved) = check::run(&mut cli.train, &typed, workers)?
        && cli.train.steps <= saved.step
    {
        let (path, step) = (saved.path.display(), saved.step);
        let text = format!(
            "note: nothing to do: `{path}` is already at step {step}\n\
             help: to continue, type `--steps {}`\n",
            more_steps(step)
        );
        print_message(&text, terminal.paint);
        return Ok(Status::Success);
    }
    if 0 < cli.watch.max_restarts && cli.watch.prints_warnings() {
        print_message(&check::restart_warning(&cli.train), terminal.paint);
    }
    let files = match workers {
        Workers::Local(_) => Vec::new(),
        Workers::Remote(_) => check::remote_files(&cli.train),
    };
    let kept = cli.train.checkpoint_dir.clone().filter(|_| cli.train.save_every.is_some());
    let program = bundled::this_executable(&cluster.transport)?;
    let words = std::iter::once(WORKER_COMMAND.into()).chain(cli.train.worker_args()).collect();
    let speaker = PrintedRanks::Rank0(CauseRule::ExitCodes);
    let worker_program = WorkerProgram {
        files,
        checkpoint_dir: kept,
        ..WorkerProgram::new(program, words, speaker)
    };
    run::start(cluster, &cli.watch, &WorkerArgs::default(), worker_program, terminal)
}

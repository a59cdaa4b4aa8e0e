//! `remuda train`: starts this executable as the workers of a job.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use super::typed_line::TypedLine;
use super::worker::{WORKER_COMMAND, worker_main};
use super::{check, config_file, device, lanes, shard_group};
use crate::base::Status;
use crate::cli::args::{self, ClusterArgs, ElasticArgs, WatchArgs, WorkerArgs};
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::parse::parse_with_settings;
use crate::cli::command::train::args::TrainArgs;
use crate::cli::command::train::check::Workers;
use crate::cli::command::train::memory_table::{MemoryTable, show_memory};
use crate::cli::command::train::outputs::remote_files;
use crate::cli::command::train::resume::{
    check_optimizer, kept_state, restart_warning, schedule_note, unsaved_warning,
};
use crate::cli::command::train::shown_trainer::show_trainer;
use crate::cli::command::train::values::DeviceArg;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::{self, ResolvedCluster};
use crate::cli::settings::{with_settings_options, with_sources};
use crate::cli::start::{self, JobArgs, PrintedRanks, WorkerProgram, start};
use crate::inventory::gpu_rooms;
use crate::launch::{CauseRule, ElasticNodes, Transport};
use crate::report::{Terminal, print_message, print_screen};
use crate::train::{SavedTraining, has_last_record, more_steps, show_reached};

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
    elastic: ElasticArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    with_settings_options(TrainCli::command())
}

/// Parses the command line, and starts this executable as the worker of every slot.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<Status, CliError> {
    if start::is_worker() {
        return worker_main(words);
    }
    let (cli, typed) = parse_with_settings::<TrainCli>(definition(), words, entries)?;
    run(cli, &typed).map_err(|error| with_sources(error, &typed))
}

fn run(mut cli: TrainCli, typed: &CommandLine) -> Result<Status, CliError> {
    args::check::cluster(&cli.cluster, typed)?;
    args::check::connected(&cli.cluster, typed)?;
    args::check::watch(&cli.watch, typed)?;
    cli.elastic.set_restarts(&mut cli.watch, typed);
    let terminal = Terminal::detect();
    let note = device::apply(&mut cli.train, &mut cli.cluster, typed, terminal)?;
    let mut cluster = resolve_cluster(&mut cli, typed, terminal)?;
    if matches!(cluster.transport, Transport::Local) {
        device::settle_here(&mut cli.train);
    }
    let elastic = resolve::elastic(&cli.elastic, &cluster, typed)?;
    let lanes = cli.train.lanes.map(NonZeroUsize::get);
    cluster.set_elastic(elastic.map(|elastic| ElasticNodes { lanes, ..elastic }));
    args::check::stdin(&cli.watch, cluster.workers(), typed)?;
    // Errors are reported once here, and not by every worker.
    let workers = Workers::of(&cluster);
    lanes::apply(&mut cli.train, &cluster, typed)?;
    let saved = settle(&mut cli, typed, &cluster, terminal)?;
    let vocabulary = check::run(&mut cli.train, typed, workers, saved.as_ref())?;
    device::check(&cli.train, typed)?;
    if let Some(saved) = saved.filter(|saved| is_complete(&cli.train, saved)) {
        print_message(&nothing_to_do(&saved, cli.train.steps), terminal.paint);
        return Ok(Status::Success);
    }
    if cli.watch.dry_run && !cli.watch.json {
        print_memory(&cli.train, vocabulary, workers)?;
    }
    check::memory(&cli.train, typed, workers, vocabulary)?;
    if cli.watch.prints_warnings() {
        let note = note.map_or_else(String::new, |note| format!("note: {note}\n"));
        print_message(&note, terminal.paint);
        print_message(&unsaved_warning(&cli.train), terminal.paint);
        if 0 < cli.watch.max_restarts {
            print_message(&restart_warning(&cli.train), terminal.paint);
        }
    }
    if let Some(elastic) = &mut cluster.elastic {
        elastic.lanes = Some(cli.train.keep_lanes(workers.count()));
    }
    let files = match workers {
        Workers::Local(_) => Vec::new(),
        Workers::Remote(_) => remote_files(&cli.train),
    };
    let kept_state = kept_state(&cli.train);
    let shown = Some(show_trainer(&cli.train.resolve(), cli.train.device, workers.count()));
    let program = start::this_executable(&cluster.transport)?;
    let words = std::iter::once(WORKER_COMMAND.into()).chain(cli.train.worker_args()).collect();
    let printed_ranks = PrintedRanks::Rank0(CauseRule::ExitCodes);
    let worker_program = WorkerProgram {
        files,
        kept_state,
        shown,
        ..WorkerProgram::new(program, words, printed_ranks)
    };
    let settings = typed.applied_settings();
    let job = JobArgs { watch: &cli.watch, workers: &WorkerArgs::default(), settings, terminal };
    start(cluster, job, worker_program)
}

/// Prints how much memory the workers will need, and how much of their GPUs is free.
fn print_memory(args: &TrainArgs, vocabulary: usize, workers: Workers) -> Result<(), CliError> {
    let uses_gpus = matches!(workers, Workers::Local(_)) && args.device == DeviceArg::Cuda;
    let memory = show_memory(&MemoryTable {
        options: &args.resolve(),
        vocabulary,
        workers: workers.count(),
        device: args.device,
        rooms: if uses_gpus { gpu_rooms() } else { Vec::new() },
    });
    print_screen(&format!("{memory}\n")).map_err(CliError::output)
}

/// Takes the settings of the checkpoint and of the file of the line, and prints what they say that the line does
/// not. Returns the checkpoint from which the run continues.
fn settle(
    cli: &mut TrainCli,
    typed: &CommandLine,
    cluster: &ResolvedCluster,
    terminal: Terminal,
) -> Result<Option<SavedTraining>, CliError> {
    let (line, workers) = (&TypedLine(typed), Workers::of(cluster));
    // Before the file: the checkpoint fills what neither the line nor the file says.
    let saved = check::resumed(&mut cli.train, typed, workers)?;
    let mut notes = config_file::apply(line, &mut cli.train, cluster, terminal.paint)?;
    if let Some(saved) = &saved {
        notes += &check_optimizer(line, &cli.train.resolve().engine.optimizer, saved)?;
        notes += &schedule_note(&cli.train, saved);
    }
    shard_group::check(&cli.train, workers.count(), typed)?;
    if cli.watch.prints_warnings() {
        print_message(&notes, terminal.paint);
    }
    Ok(saved)
}

/// Resolves where the workers run. Without an option about it, a configuration of accelerate gives their number.
fn resolve_cluster(
    cli: &mut TrainCli,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<ResolvedCluster, CliError> {
    let found = resolve::resolve_cluster(&cli.cluster, typed, terminal)?;
    let ClusterArgs { hostfile, include, exclude, num_nodes, num_gpus, .. } = &cli.cluster;
    let places = [include, exclude, num_nodes, num_gpus];
    let has_places = hostfile.is_some() || places.iter().any(|place| place.is_some());
    if has_places || !matches!(found.transport, Transport::Local) {
        return Ok(found);
    }
    let Some(workers) = config_file::processes(&cli.train) else { return Ok(found) };
    cli.cluster.num_gpus = Some(workers.to_string());
    resolve::resolve_cluster(&cli.cluster, typed, terminal)
}

/// Whether a run has nothing left to do. One that ended after its last save has not written the last record of its
/// metrics.
fn is_complete(args: &TrainArgs, saved: &SavedTraining) -> bool {
    let lacks_record = |file: &PathBuf| args.steps == saved.step && !has_last_record(file);
    args.steps <= saved.step && !args.metrics.as_ref().is_some_and(lacks_record)
}

/// The note for a run whose checkpoint has all of its steps.
fn nothing_to_do(saved: &SavedTraining, steps: u64) -> String {
    let SavedTraining { path, step, .. } = saved;
    format!(
        "note: nothing to do: {}: `{}`\nhelp: `--steps {}` continues\n",
        show_reached(*step, steps),
        path.display(),
        more_steps(*step)
    )
}

//! The worker of `remuda train`.

use std::cell::Cell;
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::base::{Rank, Status, clock, env_vars};
use crate::cli::command::checkpoint::code_of_checkpoint_error;
use crate::cli::command::train::args::TrainArgs;
#[cfg(feature = "nccl")]
use crate::cli::command::train::codes::GPU_TOO_SMALL;
use crate::cli::command::train::codes::{
    CANNOT_WRITE, DIVERGED, IN_USE, NO_UPDATES, TEXT_TOO_SHORT, TEXT_UNREADABLE,
};
#[cfg(feature = "nccl")]
use crate::cli::command::train::device;
use crate::cli::command::train::device::{GpuOption, NoDevice};
use crate::cli::command::train::device_choice;
use crate::cli::command::train::outputs::{UsedDirectory, bad_output, used_directory};
use crate::cli::command::train::sizes::code_of_shards;
use crate::cli::command::train::values::DeviceArg;
use crate::cli::error::CliError;
use crate::cli::line::codes::{BAD_VALUE, NEEDS_OTHER};
use crate::cli::start::join_group;
use crate::os::process::signals;
use crate::report::{print_error, print_screen};
use crate::runtime::checkpoint::{DirectoryLock, OpenError, SaveError};
use crate::runtime::engine::EngineError;
use crate::runtime::{Group, InitOptions, Note};
use crate::train::{CorpusError, SkipLevel, TrainError, TrainEvent, TrainOutcome, train};
#[cfg(feature = "nccl")]
use crate::train::{SettingNames, train_on};
use clap::Parser;

/// Name of the command that makes this executable a worker.
pub(in crate::cli) const WORKER_COMMAND: &str = "train-worker";

/// Maximum time without a line about a step. Notes report every step, so between evaluations a line
/// is printed only if there was none for this long.
const LINE_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The hidden form of the command that every worker is started with; alone, it is a group of one.
#[derive(Parser, Debug)]
#[command(name = "remuda train-worker", no_binary_name = true)]
struct WorkerLine {
    #[command(flatten)]
    train: TrainArgs,
}

/// Runs a worker of the job. The first signal makes it stop after the current step; the training
/// loop agrees with the other workers on the number of that step.
pub(in crate::cli) fn worker_main(words: Vec<OsString>) -> Result<Status, CliError> {
    let mut line = WorkerLine::try_parse_from(words)
        .map_err(|error| CliError::usage(BAD_VALUE, error.to_string()))?;
    let stop = signals::stop_signal(&[libc::SIGINT, libc::SIGTERM]);
    // If the launcher has checked this machine, the check finds nothing new; other machines are
    // checked here first. The disk is checked in a forked process, so this precedes the group,
    // which has threads.
    let is_zero = |name| env_vars::get_text(name).is_none_or(|number| number == "0");
    let is_first = is_zero(env_vars::TORCHELASTIC_RESTART_COUNT);
    if is_zero(env_vars::RANK)
        && let Err(refusal) = check_files(&line.train, is_first)
    {
        let Refusal { status, code, message, help } = refusal;
        print_error(&format!("error[{code}]: rank 0: {message}\nhelp: {help}\n"));
        return Ok(status);
    }
    let group = join_group(&InitOptions::default())?;
    if !line.train.share_lanes(group.world_size()) {
        let message = format!("{} workers cannot share `--lanes`", group.world_size());
        return Err(CliError::new(Status::Config, BAD_VALUE, message));
    }
    if line.train.device == DeviceArg::Auto {
        line.train.device = match device_choice::agree(&group) {
            Ok(device) => device,
            Err(error) => {
                let error = TrainError::from(error);
                report_error(&error, &line.train, &group);
                return Ok(error.status());
            }
        };
    }
    let refused = GpuOption::of(&line.train).filter(|_| line.train.device == DeviceArg::Cpu);
    if let Some(option) = refused {
        report_option(&option, &group);
        return Ok(Status::Config);
    }
    let status = run_training(&line.train, &group, &|| stop.load(Ordering::Relaxed) != 0);
    // A worker that a signal stopped does not exit with success, even if its state was saved; the
    // launcher reports which worker that was.
    Ok(match stop.load(Ordering::Relaxed) {
        signal if signal != 0 && status == Status::Success => Status::Interrupted(signal),
        _ => status,
    })
}

/// Why a worker does not begin.
struct Refusal {
    status: Status,
    code: &'static str,
    message: String,
    help: String,
}

/// Checks the files of rank 0. After a restart, existing checkpoints belong to the same job.
fn check_files(args: &TrainArgs, is_first: bool) -> Result<(), Refusal> {
    if let Some(bad) = bad_output(args) {
        let (message, help) = (bad.to_string(), bad.help().to_owned());
        return Err(Refusal { status: Status::CantCreate, code: CANNOT_WRITE, message, help });
    }
    let in_use = |message, help: &str| Refusal {
        status: Status::Config,
        code: IN_USE,
        message,
        help: help.to_owned(),
    };
    if let Some(UsedDirectory { message, .. }) = used_directory(args).filter(|_| is_first) {
        let help = "to continue that run, now and after restarts: `--resume auto`; otherwise use another \
                    `--checkpoint_dir`";
        return Err(in_use(message, help));
    }
    let Some(dir) = args.checkpoint_dir.as_ref().filter(|dir| dir.exists()) else { return Ok(()) };
    // The writer of the checkpoints locks it for the run.
    DirectoryLock::claim(dir).map(drop).map_err(|_| {
        let message = format!("another run is saving its checkpoints in `{}`", dir.display());
        in_use(message, "wait until it exits, or use another `--checkpoint_dir`")
    })
}

/// Trains as one worker of `group`, and prints the progress of rank 0. `stop` is checked between
/// steps.
fn run_training(args: &TrainArgs, group: &Group, stop: &dyn Fn() -> bool) -> Status {
    let options = args.resolve();
    let shown = Cell::new(None);
    let watch = &mut |progress: &TrainEvent| show(progress, &shown);
    let trained = match args.device {
        DeviceArg::Cuda => match train_on_gpu(args, group, stop, watch) {
            Ok(trained) => trained,
            Err(NoDevice { code, problem, help }) => {
                let (begin, rank) = (begin_of_error(code), group.rank());
                let help = help.map_or_else(String::new, |help| format!("help: {help}\n"));
                print_error(&format!("{begin}: rank {rank}: {problem}\n{help}"));
                return Status::Config;
            }
        },
        DeviceArg::Auto | DeviceArg::Cpu => train(group, &options, stop, watch),
    };
    match trained {
        Ok(_) => Status::Success,
        Err(error) => {
            report_error(&error, args, group);
            error.status()
        }
    }
}

/// Prints that workers on processors do not have an option. All have the same line, so rank 0 says it.
fn report_option(option: &GpuOption, group: &Group) {
    if group.rank() == 0 {
        let (message, reason) = (option.message(), option.reason);
        print_error(&format!("error[{NEEDS_OTHER}]: {message}: {reason}\n"));
    } else {
        group.note(&Note::PeerLost { rank: Rank(0) });
    }
    // Rank 0 has printed it before a rank exits.
    let _ = group.barrier();
}

/// Prints an error. One that all ranks have is printed by rank 0 alone, before any rank exits; the others name it as
/// the rank that says more.
fn report_error(error: &TrainError, args: &TrainArgs, group: &Group) {
    let (is_shared, rank) = (error.is_of_all_ranks(), group.rank());
    if is_shared && rank != 0 {
        group.note(&Note::PeerLost { rank: Rank(0) });
    } else {
        let begin = begin_of_error(code_of(error));
        let of_rank = if is_shared { String::new() } else { format!("rank {rank}: ") };
        let help = help_of(error, args).map_or_else(String::new, |help| format!("help: {help}\n"));
        print_error(&format!("{begin}: {of_rank}{error}\n{help}"));
    }
    if is_shared {
        // A rank that is lost meanwhile prints nothing more.
        let _ = group.barrier();
    }
}

/// What the user can do about an error, in the names of the settings that the line has.
fn help_of(error: &TrainError, args: &TrainArgs) -> Option<String> {
    #[cfg(feature = "nccl")]
    if let TrainError::DeviceMemory(error) = error {
        let names = match (&args.engine, args.lanes) {
            (Some(_), _) => SettingNames::Keys,
            (None, Some(lanes)) => SettingNames::OptionsWithLanes(lanes.get()),
            (None, None) => SettingNames::Options,
        };
        return Some(error.help(names));
    }
    let _ = args;
    error.help()
}

fn begin_of_error(code: Option<&str>) -> String {
    code.map_or_else(|| "remuda train".to_owned(), |code| format!("error[{code}]"))
}

/// Code of an error, if it has one: an error of the group or of this program has none.
fn code_of(error: &TrainError) -> Option<&'static str> {
    match error {
        TrainError::Corpus(CorpusError::Read { .. }) => Some(TEXT_UNREADABLE),
        TrainError::Corpus(CorpusError::TooShort { .. }) => Some(TEXT_TOO_SHORT),
        TrainError::Shards(error) => Some(code_of_shards(error)),
        TrainError::Load(OpenError::Group(_))
        | TrainError::Save(SaveError::Group(_))
        | TrainError::Damaged { error: OpenError::Group(_), .. }
        | TrainError::Collective(_)
        | TrainError::Runtime(_) => None,
        TrainError::Load(error) | TrainError::Damaged { error, .. } => {
            Some(code_of_checkpoint_error(error))
        }
        TrainError::Save(SaveError::InUse { .. }) => Some(IN_USE),
        TrainError::Save(SaveError::Failed { .. } | SaveError::NotShared { .. })
        | TrainError::Engine(EngineError::Offload { .. })
        | TrainError::Output { .. } => Some(CANNOT_WRITE),
        TrainError::Engine(EngineError::Diverged { .. } | EngineError::ScaleAtMinimum { .. })
        | TrainError::Diverged { .. } => Some(DIVERGED),
        TrainError::NoUpdates(_) => Some(NO_UPDATES),
        #[cfg(feature = "nccl")]
        TrainError::DeviceMemory(_) => Some(GPU_TOO_SMALL),
        TrainError::Engine(_) => None,
    }
}

/// Trains on the GPU of this worker; the outer error says why it cannot be used.
#[cfg(feature = "nccl")]
fn train_on_gpu(
    args: &TrainArgs,
    group: &Group,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(&TrainEvent),
) -> Result<Result<TrainOutcome, TrainError>, NoDevice> {
    let device = device::open(group, args.deterministic)?;
    Ok(train_on(group, device, &args.resolve(), stop, watch))
}

#[cfg(not(feature = "nccl"))]
fn train_on_gpu(
    _args: &TrainArgs,
    _group: &Group,
    _stop: &dyn Fn() -> bool,
    _watch: &mut dyn FnMut(&TrainEvent),
) -> Result<Result<TrainOutcome, TrainError>, NoDevice> {
    Err(NoDevice::new("this build of remuda has no support for GPUs (feature `nccl`)"))
}

/// Prints progress. If it cannot be printed, the training continues; the metrics are in their file.
fn print_progress(text: &str) {
    let _ = print_screen(text);
}

/// Prints a line for the first step, the last, those with an evaluation, and one every
/// [`LINE_INTERVAL_MAX`].
fn show(progress: &TrainEvent, shown: &Cell<Option<Instant>>) {
    if let TrainEvent::Stepped(report) = progress {
        let now = clock::now();
        let is_due = shown.get().is_none_or(|last| LINE_INTERVAL_MAX <= now - last);
        if report.val_loss.is_none() && report.outcome.step < report.steps && !is_due {
            return;
        }
        shown.set(Some(now));
    }
    print_progress(&format!("{progress}\n"));
    if let TrainEvent::Finished(summary) = progress
        && let Some(skipped) = summary.skipped.filter(|found| found.level() == SkipLevel::Warning)
    {
        let (message, help) = (skipped.message(), skipped.help());
        print_error(&format!("warning[{NO_UPDATES}]: {message}\nhelp: {help}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::checkpoint::DiskSpace;
    #[cfg(feature = "nccl")]
    use crate::runtime::engine::EngineConfig;
    #[cfg(feature = "nccl")]
    use crate::train::{DeviceMemoryError, MemoryCure, WorkerMemory};

    #[track_caller]
    fn check(error: impl Into<TrainError>, expected: &str) {
        assert_eq!(code_of(&error.into()), Some(expected));
    }

    #[test]
    fn errors_of_a_save_have_the_codes_of_the_start() {
        check(SaveError::InUse { dir: "kept".into() }, IN_USE);
        check(SaveError::NotShared { dir: "kept".into(), ranks: Vec::new() }, CANNOT_WRITE);
        let space =
            DiskSpace { dir: "kept".into(), needed: None, free: None, keep: None, older: 0 };
        let (path, problems) = ("kept/step-00000002".into(), Vec::new());
        check(SaveError::Failed { path, problems, space: Some(Box::new(space)) }, CANNOT_WRITE);
    }

    /// The changes are written as the line has its settings.
    #[cfg(feature = "nccl")]
    #[test]
    fn memory_that_a_gpu_lacks_is_an_error_with_changes() {
        let split = MemoryCure::Split { batch_size: 4, accumulate: 6, factor: 3 };
        let error = DeviceMemoryError {
            forecast: WorkerMemory::default(),
            free: 1,
            rank: 0,
            workers: 2,
            cures: vec![vec![split]],
        };
        let error = TrainError::from(error);
        assert_eq!((code_of(&error), error.status()), (Some(GPU_TOO_SMALL), Status::OsLimit));
        assert!(error.is_of_all_ranks());
        let help = |words: &str| {
            let line = WorkerLine::try_parse_from(words.split_whitespace()).expect("a line");
            help_of(&error, &line.train).expect("there is a change")
        };
        assert_eq!(help("--accumulate 2"), "it fits with `--batch_size 4 --accumulate 6`");
        assert_eq!(help("--lanes 4"), "it fits with `--batch_size 4 --lanes 12`");
        let engine = serde_json::to_string(&EngineConfig::default()).expect("JSON");
        assert!(help(&format!("--engine {engine}")).contains("gradient_accumulation_steps"));
    }
}

//! What every worker of `remuda train` does.

use std::cell::Cell;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::args::TrainArgs;
use super::check::{bad_output, of_another_run};
use super::codes::IN_USE;
use crate::base::{Status, clock, env_vars};
use crate::cli::bundled::join_group;
use crate::cli::error::CliError;
use crate::cli::line::codes::BAD_VALUE;
use crate::os::signals;
use crate::report::{print, print_error};
use crate::runtime::{Group, InitOptions};
use crate::train::{TrainEvent, train};

/// Steps between evaluations are told by notes; whoever keeps the lines sees one of them when there
/// was none for this long.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// The hidden form of the command that every worker is started with; alone, it is a group of one.
#[derive(Parser, Debug)]
#[command(name = "remuda train-worker", no_binary_name = true)]
struct WorkerLine {
    #[command(flatten)]
    train: TrainArgs,
}

/// A worker of the job. The first signal asks it to stop after the step that it is in; the loop
/// agrees with the other workers on which step that is.
pub(in crate::cli) fn worker_main(words: Vec<OsString>) -> Result<Status, CliError> {
    let line = WorkerLine::try_parse_from(words)
        .map_err(|error| CliError::usage(BAD_VALUE, error.to_string()))?;
    let stop = signals::stop_signal(&[libc::SIGINT, libc::SIGTERM]);
    // Where the launcher has looked, this finds nothing; on other machines nobody has looked before.
    // A disk is asked by a fork, and a group has threads.
    let is_zero = |name| env_vars::get_text(name).is_none_or(|number| number == "0");
    let mut claim = None;
    if is_zero(env_vars::RANK) {
        match claim_files(&line.train, is_zero(env_vars::TORCHELASTIC_RESTART_COUNT)) {
            Ok(claimed) => claim = claimed,
            Err((status, why)) => {
                print_error(&format!("remuda train: rank 0: {why}\n"));
                return Ok(status);
            }
        }
    }
    let group = join_group(&InitOptions::default())?;
    let status = work(&line.train, &group, &|| stop.load(Ordering::Relaxed) != 0);
    drop(claim);
    // What was saved is no success: somebody ended this worker, and the launcher tells whom.
    Ok(match stop.load(Ordering::Relaxed) {
        signal if signal != 0 && status == Status::Success => Status::Interrupted(signal),
        _ => status,
    })
}

/// Looks at the files of rank 0, and takes its directory of checkpoints for this process. What a job
/// has saved before a restart is its own.
fn claim_files(args: &TrainArgs, is_first: bool) -> Result<Option<File>, (Status, String)> {
    if let Some(bad) = bad_output(args) {
        return Err((Status::CantCreate, bad.to_string()));
    }
    let in_use =
        |message, help| (Status::Config, format!("error[{IN_USE}]: {message}\nhelp: {help}"));
    if let Some((_, message)) = of_another_run(args).filter(|_| is_first) {
        let help = "to go on with what is there, at this start and every later one: `--resume auto`; \
                    else name another `--checkpoint_dir`";
        return Err(in_use(message, help));
    }
    let Some(dir) = &args.checkpoint_dir else { return Ok(None) };
    claim_dir(dir).map_err(|_| {
        let message = format!("another run is saving its checkpoints in `{}`", dir.display());
        in_use(message, "wait for its end, or name another `--checkpoint_dir`")
    })
}

/// Somebody else has it.
struct Taken;

/// Takes a directory for this process, as long as what is returned lives. Where there are no locks, it
/// is everybody's.
fn claim_dir(dir: &Path) -> Result<Option<File>, Taken> {
    let Ok(opened) = File::open(dir) else { return Ok(None) };
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Taken),
        _ => Ok(Some(opened)),
    }
}

/// Trains as one worker of `group`, and prints what rank 0 has to tell. `stop` is asked between steps.
fn work(args: &TrainArgs, group: &Group, stop: &dyn Fn() -> bool) -> Status {
    let options = args.lower();
    let shown = Cell::new(None);
    let watch = &mut |progress: &TrainEvent| show(progress, &shown);
    match train(group, &options, stop, watch) {
        Ok(_) => Status::Success,
        Err(error) => {
            let mut text = format!("remuda train: rank {}: ", group.rank());
            writeln!(text, "{error}").expect("a string takes everything");
            print_error(&text);
            error.status()
        }
    }
}

/// What nobody can be shown is no reason to stop training; the metrics are in their file.
fn print_progress(text: &str) {
    let _ = print(text);
}

/// Prints a line: of steps, the first, the last, those that were evaluated, and one now and then.
fn show(progress: &TrainEvent, shown: &Cell<Option<Instant>>) {
    if let TrainEvent::Stepped(report) = progress {
        let now = clock::now();
        let is_due = shown.get().is_none_or(|last| QUIET_MAX <= now - last);
        if report.val_loss.is_none() && report.step < report.steps && !is_due {
            return;
        }
        shown.set(Some(now));
    }
    print_progress(&format!("{progress}\n"));
}

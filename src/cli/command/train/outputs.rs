//! Files of a run: which agents check, and which this machine checks before the start.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, fs, io};

use crate::base::Status;
use crate::base::shell::quoted;
use crate::cli::command::train::args::TrainArgs;
use crate::cli::command::train::codes::{CANNOT_WRITE, IN_USE};
use crate::cli::command::train::typed_line::TypedLine;
use crate::cli::error::CliError;
use crate::cli::output_files::{check_file, check_writable};
use crate::launch::{FileOf, WorkersFile};
use crate::report::text::show_io_error;
use crate::report::{make_dirs, with_disk_timeout};
use crate::train::{ScalarFormat, inspect, inspect_newest, newest_in};
use crate::wire::{FileState, ProblemScope, RequiredFile};

/// Returns the files of the run, for checks by the agents of other machines.
pub(super) fn remote_files(args: &TrainArgs) -> Vec<WorkersFile> {
    let file = |of, path: &Path, state, help: String| {
        let path = path.as_os_str().as_bytes().to_vec();
        // If the node of rank 0 is excluded, rank 0 runs on another node with the same
        // requirements.
        let blame = match of {
            FileOf::AllWorkers => ProblemScope::Node,
            FileOf::Rank0 => ProblemScope::Job,
        };
        WorkersFile { owner: of, file: RequiredFile { path, state, help, scope: blame } }
    };
    let readable = |of, path: &Path, flag: &str| {
        let help = match of {
            FileOf::AllWorkers => "every worker reads it: the same path must exist on every node",
            FileOf::Rank0 => "rank 0 reads it: the path must exist on its node",
        };
        file(of, path, FileState::Readable, format!("`{flag}`: {help}"))
    };
    let data = args.data.iter().map(|path| readable(FileOf::AllWorkers, path, "--data"));
    let offload = args.engine.iter().map(|engine| &engine.offload);
    let offload = offload.flat_map(|found| {
        found.optimizer.directory().into_iter().chain(found.parameters.as_deref())
    });
    let offload = offload.map(|dir| {
        let help =
            format!("`nvme_path`: correct it, or type `mkdir -p {}` on every node", quoted(dir));
        file(FileOf::AllWorkers, dir, FileState::Readable, help)
    });
    let resume = args.resume.iter().filter(|_| !args.is_auto());
    let resume = resume.map(|path| readable(FileOf::Rank0, path, "--resume"));
    let kept = args.checkpoint_dir.iter().filter(|dir| !continues_in(args, dir)).map(|dir| {
        let state = FileState::NoFilesWithPrefix("step-".to_owned());
        file(FileOf::Rank0, dir, state, other_dir_help(dir))
    });
    data.chain(offload).chain(resume).chain(kept).collect()
}

/// Whether a directory contains the checkpoints from which the run continues.
fn continues_in(args: &TrainArgs, dir: &Path) -> bool {
    let is_it = |path: &Path| path == dir || path.parent() == Some(dir);
    let Some(resume) = &args.resume else { return false };
    if args.is_auto() {
        return true;
    }
    let real = |path: &Path| path.canonicalize().ok();
    is_it(resume)
        || real(dir)
            .zip(real(resume))
            .is_some_and(|(dir, resume)| resume == dir || resume.parent() == Some(&*dir))
}

/// Why a run cannot save its checkpoints in a directory: it would replace others.
pub(super) struct UsedDirectory {
    pub(super) message: String,
    pub(super) help: String,
}

/// Finds out whether the run would replace checkpoints of another run, or later ones of the run that it continues.
pub(super) fn used_directory(args: &TrainArgs) -> Option<UsedDirectory> {
    let dir = args.checkpoint_dir.as_deref()?;
    if continues_in(args, dir) { later_in_dir(args, dir) } else { other_run_in_dir(dir) }
}

/// Checkpoints after the one from which the run continues: it would replace them one by one, and those of two runs
/// would be left. Damaged ones do not count.
fn later_in_dir(args: &TrainArgs, dir: &Path) -> Option<UsedDirectory> {
    let resume = args.resume.as_deref().filter(|_| !args.is_auto())?;
    let (from, newest) = (inspect(resume).ok()?.step, inspect_newest(dir).ok()?.step);
    let shown = dir.display();
    let message = format!(
        "`{shown}` has checkpoints after step {from}, up to step {newest}, which this run would replace"
    );
    let help = "name an empty directory in `--checkpoint_dir`, or continue from the newest checkpoint with \
                `--resume auto`";
    (from < newest).then(|| UsedDirectory { message, help: help.to_owned() })
}

fn other_run_in_dir(dir: &Path) -> Option<UsedDirectory> {
    let newest = newest_in(dir)?;
    let newest = newest.file_name().unwrap_or_default().display();
    let message =
        format!("`{}` contains checkpoints of another run, up to `{newest}`", dir.display());
    Some(UsedDirectory { message, help: other_dir_help(dir) })
}

fn other_dir_help(dir: &Path) -> String {
    let dir = quoted(dir);
    format!(
        "to continue that run, add `--resume {dir}`; for a new run, name an empty directory in `--checkpoint_dir`"
    )
}

/// Checks that the run replaces no checkpoints of another one.
pub(super) fn check_unused(line: &TypedLine<'_>, args: &TrainArgs) -> Result<(), CliError> {
    let Some(UsedDirectory { message, help }) = used_directory(args) else { return Ok(()) };
    let place = line.0.value_or_end("checkpoint_dir");
    Err(line
        .refuse(Status::Config, IN_USE, place, message, |found| found.label("in use").help(help)))
}

pub(super) fn check_outputs(line: &TypedLine<'_>, args: &TrainArgs) -> Result<(), CliError> {
    let Some(bad) = bad_output(args) else { return Ok(()) };
    let (status, message) = (Status::CantCreate, bad.to_string());
    if let Some(place) = args.config_place(bad.keys) {
        return Err(place.refuse(status, CANNOT_WRITE, message, |found| found.help(bad.help)));
    }
    let place = line.0.value_or_end(bad.flag);
    Err(line.refuse(status, CANNOT_WRITE, place, message, |found| found.help(bad.help)))
}

/// Error about a file of the run that cannot be written.
pub(super) struct BadOutput<'a> {
    flag: &'static str,
    /// Keys of the file of `--deepspeed_config` that name the path.
    keys: &'static [&'static str],
    path: &'a Path,
    why: String,
    help: String,
}

impl BadOutput<'_> {
    /// What the user can do.
    pub(super) fn help(&self) -> &str {
        &self.help
    }
}

impl fmt::Display for BadOutput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write `{}`: {}", self.path.display(), self.why)
    }
}

/// Finds the first file on this machine that cannot be written, and creates the directories of the run. The
/// process must not have started threads yet.
pub(super) fn bad_output(args: &TrainArgs) -> Option<BadOutput<'_>> {
    // First, because it creates nothing.
    if let Some(bad) = bad_offload(args) {
        return Some(bad);
    }
    let monitors = args.monitor.iter().map(|monitor| {
        let keys: &[&str] = match monitor.format {
            ScalarFormat::TensorBoard => &["tensorboard.output_path", "tensorboard.enabled"],
            ScalarFormat::Csv => &["csv_monitor.output_path", "csv_monitor.enabled"],
        };
        ("deepspeed_config", keys, &monitor.dir)
    });
    let dirs = [("checkpoint_dir", &args.checkpoint_dir), ("tensorboard", &args.tensorboard)];
    let no_keys: &[&str] = &[];
    let dirs = dirs.into_iter().filter_map(|(flag, dir)| Some((flag, no_keys, dir.as_ref()?)));
    let mut dirs = dirs.chain(monitors);
    if let Some(bad) = dirs.find_map(|(flag, keys, dir)| bad_directory(flag, keys, dir)) {
        return Some(bad);
    }
    let files = [("metrics", &args.metrics), ("plot", &args.plot)].into_iter();
    let files = files.filter_map(|(flag, file)| Some((flag, file.as_ref()?)));
    let mut refused = files.filter_map(|(flag, file)| Some((flag, file, check_file(file).err()?)));
    let (flag, path, why) = refused.next()?;
    let help = "name a file in a directory that exists and that you can write".to_owned();
    Some(BadOutput { flag, keys: &[], path, why, help })
}

/// Finds a directory for offloaded state that cannot be used. It is not created: a directory beside a mistyped mount
/// point would fill another disk.
fn bad_offload(args: &TrainArgs) -> Option<BadOutput<'_>> {
    const OPTIMIZER: &[&str] = &["zero_optimization.offload_optimizer.nvme_path"];
    const PARAMETERS: &[&str] = &["zero_optimization.offload_param.nvme_path"];
    let offload = &args.engine.as_ref()?.offload;
    let dirs =
        [(OPTIMIZER, offload.optimizer.directory()), (PARAMETERS, offload.parameters.as_deref())];
    let mut dirs = dirs.into_iter().filter_map(|(keys, dir)| Some((keys, dir?)));
    dirs.find_map(|(keys, path)| {
        let checked = with_disk_timeout(|| {
            if fs::metadata(path)?.is_dir() {
                check_writable(path)
            } else {
                Err(io::Error::from_raw_os_error(libc::ENOTDIR))
            }
        });
        let error = checked.err()?;
        let help = match error.kind() {
            io::ErrorKind::NotFound => {
                format!("correct the path, or type `mkdir -p {}` on every node", quoted(path))
            }
            kind => help_of_directory(kind).to_owned(),
        };
        let why = show_io_error(&error);
        Some(BadOutput { flag: "deepspeed_config", keys, path, why, help })
    })
}

/// Creates a directory, and checks that it can be written.
fn bad_directory<'a>(
    flag: &'static str,
    keys: &'static [&'static str],
    path: &'a Path,
) -> Option<BadOutput<'a>> {
    let made = make_dirs(path, 0o777).and_then(|()| with_disk_timeout(|| check_writable(path)));
    let error = made.err()?;
    let kind = error.kind();
    let hangs = kind == io::ErrorKind::TimedOut;
    let is_file = !hangs && fs::metadata(path).is_ok_and(|found| !found.is_dir());
    let why = if is_file { "it is a file".to_owned() } else { show_io_error(&error) };
    Some(BadOutput { flag, keys, path, why, help: help_of_directory(kind).to_owned() })
}

/// What to do about a directory that cannot be written.
fn help_of_directory(error: io::ErrorKind) -> &'static str {
    match error {
        io::ErrorKind::TimedOut => {
            "its file system does not respond; use a directory on another one"
        }
        _ => "use a directory that you can write",
    }
}

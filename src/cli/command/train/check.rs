//! Checks before any worker starts: sizes that do not fit each other, missing files, checkpoints of
//! another run. Errors point at the place of the command line.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, io};

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, Status};
use crate::cli::command::train::args::{ModelArg, TrainArgs};
use crate::cli::command::train::codes::{
    BAD_SIZES, CANNOT_WRITE, CHECKPOINT_DIFFERS, CHECKPOINT_UNUSABLE, IN_USE, TEXT_TOO_SHORT,
    TEXT_UNREADABLE, TOO_LARGE,
};
use crate::cli::error::CliError;
use crate::cli::line::codes::NEEDS_OTHER;
use crate::cli::line::{ArgvSpan, CommandLine, RefusedLine, cannot_combine, needs_other};
use crate::cli::output_files::{check_file, check_writable};
use crate::inventory::available_memory;
use crate::launch::{FileOf, WorkersFile};
use crate::report::text::{show_bytes, show_count, show_io_error};
use crate::report::{make_dirs, with_disk_timeout};
use crate::train::{
    CheckpointError, CheckpointInfo, Corpus, EXTENSION, ModelId, ModelOptions, inspect,
    inspect_newest, newest_in, worker_bytes,
};
use crate::wire::{FileState, ProblemScope, RequiredFile};

/// Number of different bytes that is assumed for a text that was not read yet: the maximum.
const VOCABULARY_MAX: usize = 256;

/// Place and number of the workers, and so of their files and their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workers {
    /// The workers run on this machine.
    Local(usize),
    /// The workers run on other machines: the agents check the files there, and the workers report
    /// all other errors.
    Remote(usize),
}

impl Workers {
    fn count(self) -> usize {
        match self {
            Self::Local(count) | Self::Remote(count) => count,
        }
    }
}

/// Checks everything that this machine can check. Options that were not typed are taken from the
/// checkpoint of `--resume`, which is returned.
pub(super) fn run(
    args: &mut TrainArgs,
    typed: &CommandLine,
    workers: Workers,
) -> Result<Option<CheckpointInfo>, CliError> {
    if args.save_every.is_some() && args.checkpoint_dir.is_none() {
        return Err(needs_other(typed, "save_every", "checkpoint_dir").into());
    }
    if args.keep.is_some() && args.checkpoint_dir.is_none() {
        return Err(needs_other(typed, "keep", "checkpoint_dir").into());
    }
    if args.is_auto() && args.checkpoint_dir.is_none() {
        return Err(auto_needs_directory(typed).into());
    }
    let line = Line(typed);
    let is_here = matches!(workers, Workers::Local(_));
    let resume = if args.is_auto() {
        args.checkpoint_dir.as_deref().filter(|dir| newest_in(dir).is_some())
    } else {
        args.resume.as_deref().filter(|path| is_here || path.exists())
    };
    let inspect = if args.is_auto() { inspect_newest } else { inspect };
    let saved = resume.map(|path| line.find_saved(path, inspect)).transpose()?;
    if let Some(saved) = &saved {
        line.apply_saved(args, saved, is_here)?;
        apply_samples(args, saved, workers.count());
    }
    if args.model() == ModelArg::Mlp && !args.data.is_empty() {
        return Err(
            cannot_combine(typed, "model", "data", "the samples of an MLP are synthetic").into()
        );
    }
    line.check_heads(args)?;
    let Workers::Local(workers) = workers else { return Ok(saved) };
    line.check_data(args)?;
    let vocabulary = saved.as_ref().map_or(VOCABULARY_MAX, |saved| match saved.model {
        ModelId::Gpt { vocabulary, .. } => vocabulary,
        ModelId::Mlp { .. } => VOCABULARY_MAX,
    });
    line.check_memory(args, vocabulary, workers, available_memory())?;
    line.check_outputs(args)?;
    line.check_unused(args)?;
    Ok(saved)
}

/// Returns the error for `--resume auto` without the directory of the checkpoints.
fn auto_needs_directory(typed: &CommandLine) -> RefusedLine {
    let place = typed.value_or_end("resume");
    typed.refuse(&[place], |spans| {
        let message = "`--resume auto` needs `--checkpoint_dir`";
        Diagnostic::error(NEEDS_OTHER, spans[0], message)
            .label("reads the newest checkpoint of that directory")
            .help("add `--checkpoint_dir DIR`, or name a checkpoint: `--resume PATH`")
    })
}

/// Sets the options that a checkpoint determines: the batch size, the seed, and, if the workers can
/// share them evenly, the micro-batches. Typed options take precedence.
fn apply_samples(args: &mut TrainArgs, saved: &CheckpointInfo, workers: usize) {
    let Some(samples) = saved.samples else { return };
    args.seed.get_or_insert(samples.seed);
    args.batch_size = args.batch_size.or(NonZeroUsize::new(samples.batch_size));
    let each = samples.lanes.is_multiple_of(workers.max(1)).then(|| samples.lanes / workers.max(1));
    args.accumulate = args.accumulate.or(each.and_then(NonZeroUsize::new));
}

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
    let resume = args.resume.iter().filter(|_| !args.is_auto());
    let resume = resume.map(|path| readable(FileOf::Rank0, path, "--resume"));
    let kept = args.checkpoint_dir.iter().filter(|dir| !continues_in(args, dir)).map(|dir| {
        let state = FileState::NoFilesWithSuffix(EXTENSION.to_owned());
        file(FileOf::Rank0, dir, state, other_dir_help(dir))
    });
    data.chain(resume).chain(kept).collect()
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

/// Returns the checkpoint directory if it contains checkpoints of another run, and the message.
pub(super) fn other_run_in_dir(args: &TrainArgs) -> Option<(&Path, String)> {
    let dir = args.checkpoint_dir.as_deref().filter(|dir| !continues_in(args, dir))?;
    let newest = newest_in(dir)?;
    let newest = newest.file_name().unwrap_or_default().display();
    Some((
        dir,
        format!("`{}` contains checkpoints of another run, up to `{newest}`", dir.display()),
    ))
}

fn other_dir_help(dir: &Path) -> String {
    let dir = quoted(dir);
    format!("to continue that run: `--resume {dir}`; otherwise use another `--checkpoint_dir`")
}

/// Returns a warning if a restart could not continue from the step of the failure.
pub(super) fn restart_warning(args: &TrainArgs) -> String {
    let (missing, options) = match (&args.checkpoint_dir, args.save_every) {
        (Some(_), Some(_)) => return String::new(),
        (Some(_), None) => ("--save_every", "`--save_every STEPS`"),
        (None, _) => ("--checkpoint_dir", "`--checkpoint_dir DIR --save_every STEPS`"),
    };
    let from = match &args.resume {
        Some(path) => format!("`{}`", path.display()),
        None => "step 1".to_owned(),
    };
    format!(
        "warning: without {missing} a restart begins again at {from}\n\
         help: with {options} a restart loses at most STEPS steps\n"
    )
}

/// The command line, for errors that point at its options.
struct Line<'a>(&'a CommandLine);

impl Line<'_> {
    /// Returns the place of the value of the first given option.
    fn first_of(&self, flags: &[&str]) -> ArgvSpan {
        let given = flags.iter().find_map(|flag| self.0.value_span(flag));
        given.unwrap_or_else(|| self.0.end_span())
    }

    /// Returns the place of one of several files of an option.
    fn file(&self, flag: &str, file: &Path) -> ArgvSpan {
        let whole = self.0.words.iter().position(|word| word == file.as_os_str());
        match whole {
            Some(word) => ArgvSpan { word, start: 0, end: file.as_os_str().len() },
            None => self.0.value_or_end(flag),
        }
    }

    fn refuse(
        &self,
        status: Status,
        code: &'static str,
        place: ArgvSpan,
        message: String,
        finish: impl FnOnce(Diagnostic) -> Diagnostic,
    ) -> CliError {
        let make = |spans: &[_]| finish(Diagnostic::error(code, spans[0], message));
        CliError::Findings { status, findings: vec![self.0.refuse(&[place], make).findings] }
    }

    fn find_saved(
        &self,
        path: &Path,
        inspect: fn(&Path) -> Result<CheckpointInfo, CheckpointError>,
    ) -> Result<CheckpointInfo, CliError> {
        let answer = with_disk_timeout(|| fs::metadata(path).map(drop));
        let hangs = answer.err().filter(|error| error.kind() == io::ErrorKind::TimedOut);
        let found = match hangs {
            Some(source) => Err(CheckpointError::Read { path: path.to_owned(), source }),
            None => inspect(path),
        };
        found.map_err(|error| {
            let (status, message, help) = match &error {
                CheckpointError::Read { path, source } => (
                    Status::NoInput,
                    format!(
                        "cannot read checkpoint `{}`: {}",
                        path.display(),
                        show_io_error(source)
                    ),
                    "use a `.safetensors` file of `remuda train`, or a directory of them",
                ),
                CheckpointError::Missing { .. } => (
                    Status::NoInput,
                    error.to_string(),
                    "`--checkpoint_dir` saves checkpoints; leave `--resume` out to start a new run",
                ),
                CheckpointError::Malformed { .. }
                | CheckpointError::Mismatch { .. }
                | CheckpointError::Write { .. } => (
                    Status::BadInput,
                    error.to_string(),
                    "use another checkpoint, or leave `--resume` out to start a new run",
                ),
            };
            let place = self.0.value_or_end("resume");
            self.refuse(status, CHECKPOINT_UNUSABLE, place, message, |found| found.help(help))
        })
    }

    /// Takes sizes that were not typed from the checkpoint, and reports every contradiction: a run
    /// continues with the sizes and the text with which it began.
    fn apply_saved(
        &self,
        args: &mut TrainArgs,
        saved: &CheckpointInfo,
        has_text: bool,
    ) -> Result<(), CliError> {
        let size = |saved| NonZeroUsize::new(saved).unwrap_or(NonZeroUsize::MIN);
        let mut findings = Vec::new();
        match saved.model {
            ModelId::Gpt { layers, heads, width, block, .. } => findings.extend([
                self.check_agreement("model", &mut args.model, ModelArg::Gpt),
                self.check_agreement("layers", &mut args.layers, size(layers)),
                self.check_agreement("heads", &mut args.heads, size(heads)),
                self.check_agreement("width", &mut args.width, size(width)),
                self.check_agreement("block", &mut args.block, size(block)),
                has_text.then(|| self.check_text_agreement(args, saved)).flatten(),
            ]),
            ModelId::Mlp { layers, width, teacher, .. } => findings.extend([
                self.check_agreement("model", &mut args.model, ModelArg::Mlp),
                self.check_agreement("layers", &mut args.layers, size(layers)),
                self.check_agreement("width", &mut args.width, size(width)),
                self.check_agreement("seed", &mut args.seed, teacher),
            ]),
        }
        let findings: Vec<Findings> = findings.into_iter().flatten().collect();
        if findings.is_empty() {
            return Ok(());
        }
        Err(CliError::Findings { status: Status::Config, findings })
    }

    fn check_agreement<T: Copy + PartialEq + ToString>(
        &self,
        flag: &str,
        typed: &mut Option<T>,
        saved: T,
    ) -> Option<Findings> {
        let typed = *typed.get_or_insert(saved);
        if typed == saved {
            return None;
        }
        let (typed, saved) = (typed.to_string(), saved.to_string());
        let message = format!("`--{flag} {typed}` contradicts the checkpoint, which has {saved}");
        let make = |spans: &[_]| {
            Diagnostic::error(CHECKPOINT_DIFFERS, spans[0], message)
                .label(format!("{typed} here"))
                .related(spans[1], format!("{saved} there"))
                .help(format!("leave `--{flag}` out to use the value of the checkpoint"))
        };
        Some(
            self.0
                .refuse(&[self.0.value_or_end(flag), self.0.value_or_end("resume")], make)
                .findings,
        )
    }

    /// Returns an error if the text has other bytes than the checkpoint's model, which could not
    /// continue with it. If the text cannot be read, another check reports that.
    fn check_text_agreement(&self, args: &TrainArgs, saved: &CheckpointInfo) -> Option<Findings> {
        let ModelId::Gpt { vocabulary, bytes, .. } = &saved.model else { return None };
        let corpus = Corpus::open(&args.data).ok()?;
        let found = corpus.vocabulary().len();
        if found == *vocabulary && corpus.digest() == *bytes {
            return None;
        }
        let differs = if found == *vocabulary {
            format!("has {found} different bytes, but not those of")
        } else {
            format!("has {found} different bytes, not the {vocabulary} of")
        };
        let (what, place) = if args.data.is_empty() {
            ("the text of this project", self.0.value_or_end("resume"))
        } else {
            ("the text", self.0.value_or_end("data"))
        };
        let message = format!("{what} {differs} the text of the checkpoint");
        let make = |spans: &[_]| {
            Diagnostic::error(CHECKPOINT_DIFFERS, spans[0], message)
                .help("use the `--data` of the run that saved the checkpoint")
        };
        Some(self.0.refuse(&[place], make).findings)
    }

    fn check_heads(&self, args: &TrainArgs) -> Result<(), CliError> {
        let ModelOptions::Gpt(gpt) = args.resolve().model else { return Ok(()) };
        let (heads, width) = (gpt.heads, gpt.width);
        if width.is_multiple_of(heads) {
            return Ok(());
        }
        let place = self.first_of(&["heads", "width"]);
        let message = format!("a width of {width} is not a multiple of {heads} heads");
        Err(self.refuse(Status::Usage, BAD_SIZES, place, message, |found| {
            found.label("not divisible").help(match width.checked_next_multiple_of(heads) {
                Some(width) => format!("use `--width {width}`"),
                None => format!("use `--heads 1`, or a width that is a multiple of {heads}"),
            })
        }))
    }

    /// Checks that there is a text, and that it is long enough.
    fn check_data(&self, args: &TrainArgs) -> Result<(), CliError> {
        let ModelOptions::Gpt(gpt) = args.resolve().model else { return Ok(()) };
        let mut len = 0usize;
        for file in &gpt.data {
            len = len.saturating_add(self.check_text(file)?);
        }
        let is_own = gpt.data.is_empty();
        let len = if is_own { Corpus::embedded_len() } else { len };
        Corpus::check_len(len, gpt.block).map_err(|error| {
            let place = self.first_of(if is_own { &["block"] } else { &["data", "block"] });
            let longest = (len / 10).saturating_sub(1);
            let help = match longest {
                0 => "a text needs at least some hundred bytes".to_owned(),
                longest => format!("use more text, or at most `--block {longest}`"),
            };
            let message = error.to_string();
            self.refuse(Status::BadInput, TEXT_TOO_SHORT, place, message, |found| found.help(help))
        })
    }

    /// Checks a file of text, and returns its length.
    fn check_text(&self, file: &Path) -> Result<usize, CliError> {
        let place = self.file("data", file);
        let cannot = |why: &str| {
            let message = format!("cannot read `{}`: {why}", file.display());
            let help =
                "use files with training text, or leave `--data` out to train on a built-in text";
            self.refuse(Status::NoInput, TEXT_UNREADABLE, place, message, |found| found.help(help))
        };
        with_disk_timeout(|| fs::metadata(file).map(drop))
            .map_err(|error| cannot(&show_io_error(&error)))?;
        let found = fs::metadata(file).map_err(|error| cannot(&show_io_error(&error)))?;
        if found.is_dir() {
            return Err(cannot("it is a directory"));
        }
        if !found.is_file() {
            return Err(cannot("it is not a regular file"));
        }
        File::open(file).map_err(|error| cannot(&show_io_error(&error)))?;
        if found.len() == 0 {
            let message = format!("`{}` is empty", file.display());
            return Err(self.refuse(Status::BadInput, TEXT_TOO_SHORT, place, message, |found| {
                found.label("no training text").help("leave it out, or use another file")
            }));
        }
        Ok(usize::try_from(found.len()).unwrap_or(usize::MAX))
    }

    /// Checks that this machine has enough memory for the workers. If the available memory is not
    /// known, the workers check it at their start.
    fn check_memory(
        &self,
        args: &TrainArgs,
        vocabulary: usize,
        workers: usize,
        available: Option<u64>,
    ) -> Result<(), CliError> {
        let Some(available) = available.map(|bytes| bytes as f64) else { return Ok(()) };
        let mut options = args.resolve();
        let mut needed = |batch_size| {
            options.batch_size = batch_size;
            workers as f64 * worker_bytes(&options, vocabulary)
        };
        let typed = args.resolve().batch_size;
        let total = needed(typed);
        if total <= available {
            return Ok(());
        }
        let largest = largest_below(typed.get(), |samples| needed(samples) <= available);
        let (place, help) = if let Some(samples) = largest {
            (self.first_of(&["batch_size"]), format!("use at most `--batch_size {samples}`"))
        } else {
            let (sizes, names): (&[_], _) = match args.model() {
                ModelArg::Gpt => {
                    (&["width", "layers", "block"], "`--width`, `--layers`, `--block`")
                }
                ModelArg::Mlp => (&["width", "layers"], "`--width`, `--layers`"),
            };
            let help = format!(
                "one sample per worker is already too much: use a smaller model ({names}) or fewer \
                 workers"
            );
            (self.first_of(sizes), help)
        };
        let (total, available) = (show_bytes(total), show_bytes(available));
        let message = format!(
            "{} would need about {total} of memory, {available} are available",
            show_count(workers, "worker")
        );
        Err(self.refuse(Status::OsLimit, TOO_LARGE, place, message, |found| found.help(help)))
    }

    /// Checks that the checkpoint directory contains no other run: each run would replace the steps
    /// of the other.
    fn check_unused(&self, args: &TrainArgs) -> Result<(), CliError> {
        let Some((dir, message)) = other_run_in_dir(args) else { return Ok(()) };
        let (place, help) = (self.0.value_or_end("checkpoint_dir"), other_dir_help(dir));
        Err(self.refuse(Status::Config, IN_USE, place, message, |found| {
            found.label("in use").help(help)
        }))
    }

    fn check_outputs(&self, args: &TrainArgs) -> Result<(), CliError> {
        let Some(bad) = bad_output(args) else { return Ok(()) };
        let place = self.0.value_or_end(bad.flag);
        let message = bad.to_string();
        Err(self
            .refuse(Status::CantCreate, CANNOT_WRITE, place, message, |found| found.help(bad.help)))
    }
}

/// Error about a file of the run that cannot be written.
pub(super) struct BadOutput<'a> {
    flag: &'static str,
    path: &'a Path,
    why: String,
    help: &'static str,
}

impl fmt::Display for BadOutput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write `{}`: {}", self.path.display(), self.why)
    }
}

/// Finds the first file on this machine that cannot be written, and creates the checkpoint
/// directory. The process must not have started threads yet.
pub(super) fn bad_output(args: &TrainArgs) -> Option<BadOutput<'_>> {
    let bad = |flag, path, why, help| Some(BadOutput { flag, path, why, help });
    if let Some(dir) = &args.checkpoint_dir
        && let Err(error) =
            make_dirs(dir, 0o777).and_then(|()| with_disk_timeout(|| check_writable(dir)))
    {
        let hangs = error.kind() == io::ErrorKind::TimedOut;
        let is_file = !hangs && fs::metadata(dir).is_ok_and(|found| !found.is_dir());
        let why = if is_file { "it is a file".to_owned() } else { show_io_error(&error) };
        let help = if hangs {
            "its file system does not respond; use a directory on another one"
        } else {
            "use a directory that you can write"
        };
        return bad("checkpoint_dir", dir, why, help);
    }
    let files = [("metrics", &args.metrics), ("plot", &args.plot)].into_iter();
    let files = files.filter_map(|(flag, file)| Some((flag, file.as_ref()?)));
    let mut refused = files.filter_map(|(flag, file)| Some((flag, file, check_file(file).err()?)));
    let (flag, file, why) = refused.next()?;
    bad(flag, file, why, "name a file in a directory that exists and that you can write")
}

/// Returns the greatest number of samples below `typed` that fits, if there is one; if a number
/// fits, every smaller number fits too.
fn largest_below(typed: usize, mut fits: impl FnMut(NonZeroUsize) -> bool) -> Option<usize> {
    let (mut below, mut above) = (0, typed);
    while below + 1 < above {
        let middle = below + (above - below) / 2;
        let samples = NonZeroUsize::new(middle).expect("it is above `below`");
        *if fits(samples) { &mut below } else { &mut above } = middle;
    }
    (0 < below).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_number_that_fits_is_found() {
        #[track_caller]
        fn check(typed: usize, limit: usize, expect: Option<usize>) {
            assert_eq!(largest_below(typed, |samples| samples.get() <= limit), expect);
        }
        check(999_999_999, 41, Some(41));
        check(usize::MAX, usize::MAX - 1, Some(usize::MAX - 1));
        check(2, 1, Some(1));
        check(2, 0, None);
        check(1, 0, None);
    }
}

//! What can be known before any worker starts: sizes that do not fit each other, files that are not
//! there, checkpoints of something else. Each is told with the place of the command line.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::Path;

use rustix::fs::Access;

use super::args::{ModelArg, TrainArgs};
use super::codes::{
    BAD_SIZES, CANNOT_WRITE, CHECKPOINT_DIFFERS, CHECKPOINT_UNUSABLE, TEXT_TOO_SHORT,
    TEXT_UNREADABLE,
};
use crate::base::{Diagnostic, Status};
use crate::cli::check::{cannot_combine, needs_other};
use crate::cli::error::CliError;
use crate::cli::line::{Place, Typed};
use crate::report::summary::reason;
use crate::train::{CheckpointError, Corpus, CorpusError, Identity, ModelOptions, Saved, inspect};

/// Where the workers' files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// On this machine.
    Here,
    /// On machines that we cannot look at: what is wrong there is told by the workers.
    Elsewhere,
}

/// Checks everything that can be known here. What was not typed is taken from the checkpoint of
/// `--resume`, which is returned.
pub(super) fn run(
    args: &mut TrainArgs,
    typed: &Typed,
    files: Files,
) -> Result<Option<Saved>, CliError> {
    if args.save_every.is_some() && args.checkpoint_dir.is_none() {
        return Err(needs_other(typed, "save_every", "checkpoint_dir").into());
    }
    let line = Line(typed);
    let resume = args.resume.as_deref().filter(|path| files == Files::Here || path.exists());
    let saved = resume.map(|path| line.find_saved(path)).transpose()?;
    if let Some(saved) = &saved {
        line.take_sizes(args, saved)?;
    }
    if args.model() == ModelArg::Mlp && !args.data.is_empty() {
        return Err(cannot_combine(typed, "model", "data", "its samples are made up").into());
    }
    line.check_heads(args)?;
    if files == Files::Elsewhere {
        return Ok(saved);
    }
    line.check_data(args)?;
    if let Some(saved) = &saved {
        line.check_vocabulary(args, saved)?;
    }
    line.check_outputs(args)?;
    Ok(saved)
}

/// What was typed, to be pointed at.
struct Line<'a>(&'a Typed);

impl Line<'_> {
    /// The value of an option, or the end of the line.
    fn value(&self, flag: &str) -> Place {
        self.0.place_of(flag).unwrap_or_else(|| self.0.end())
    }

    /// The value of the first of these that was given.
    fn first_of(&self, flags: &[&str]) -> Place {
        let given = flags.iter().find_map(|flag| self.0.place_of(flag));
        given.unwrap_or_else(|| self.0.end())
    }

    /// A file among several behind one option.
    fn file(&self, flag: &str, file: &Path) -> Place {
        let whole = self.0.words.iter().position(|word| word == file.as_os_str());
        match whole {
            Some(word) => Place { word, start: 0, end: file.as_os_str().len() },
            None => self.value(flag),
        }
    }

    fn refuse(
        &self,
        status: Status,
        code: &'static str,
        place: Place,
        message: String,
        finish: impl FnOnce(Diagnostic) -> Diagnostic,
    ) -> CliError {
        let make = |spans: &[_]| finish(Diagnostic::error(code, spans[0], message));
        CliError::Findings { status, findings: vec![self.0.refuse(&[place], make).findings] }
    }

    fn find_saved(&self, path: &Path) -> Result<Saved, CliError> {
        inspect(path).map_err(|error| {
            let (status, message, help) = match &error {
                CheckpointError::Read { path, source } => (
                    Status::NoInput,
                    format!("cannot read checkpoint `{}`: {}", path.display(), reason(source)),
                    "give a `.safetensors` file of `remuda train`, or a directory of them",
                ),
                CheckpointError::Missing { .. } => (
                    Status::NoInput,
                    error.to_string(),
                    "a run with `--checkpoint_dir` saves them; leave `--resume` out to begin anew",
                ),
                CheckpointError::Malformed { .. }
                | CheckpointError::Mismatch { .. }
                | CheckpointError::Write { .. } => (
                    Status::BadInput,
                    error.to_string(),
                    "take another one, or leave `--resume` out to begin anew",
                ),
            };
            let place = self.value("resume");
            self.refuse(status, CHECKPOINT_UNUSABLE, place, message, |found| found.help(help))
        })
    }

    /// A run goes on with the sizes that it began with.
    fn take_sizes(&self, args: &mut TrainArgs, saved: &Saved) -> Result<(), CliError> {
        match saved.model {
            Identity::Gpt { layers, heads, width, block, .. } => {
                self.agree("model", &mut args.model, ModelArg::Gpt)?;
                self.agree_size("layers", &mut args.layers, layers)?;
                self.agree_size("heads", &mut args.heads, heads)?;
                self.agree_size("width", &mut args.width, width)?;
                self.agree_size("block", &mut args.block, block)
            }
            Identity::Mlp { layers, width, teacher, .. } => {
                self.agree("model", &mut args.model, ModelArg::Mlp)?;
                self.agree_size("layers", &mut args.layers, layers)?;
                self.agree_size("width", &mut args.width, width)?;
                self.agree("seed", &mut args.seed, teacher)
            }
        }
    }

    fn agree_size(
        &self,
        flag: &str,
        typed: &mut Option<NonZeroUsize>,
        saved: usize,
    ) -> Result<(), CliError> {
        NonZeroUsize::new(saved).map_or(Ok(()), |saved| self.agree(flag, typed, saved))
    }

    fn agree<T: Copy + PartialEq + ToString>(
        &self,
        flag: &str,
        typed: &mut Option<T>,
        saved: T,
    ) -> Result<(), CliError> {
        match *typed {
            Some(typed) if typed != saved => {
                let (ours, theirs) = (typed.to_string(), saved.to_string());
                let message =
                    format!("`--{flag} {ours}` contradicts the checkpoint, which has {theirs}");
                let make = |spans: &[_]| {
                    Diagnostic::error(CHECKPOINT_DIFFERS, spans[0], message)
                        .label(format!("{ours} here"))
                        .related(spans[1], format!("{theirs} there"))
                        .help(format!(
                            "leave `--{flag}` out: a run goes on with what it began with"
                        ))
                };
                let places = [self.value(flag), self.value("resume")];
                let findings = vec![self.0.refuse(&places, make).findings];
                Err(CliError::Findings { status: Status::Config, findings })
            }
            _ => {
                *typed = Some(saved);
                Ok(())
            }
        }
    }

    fn check_heads(&self, args: &TrainArgs) -> Result<(), CliError> {
        let ModelOptions::Gpt(gpt) = args.lower().model else { return Ok(()) };
        let (heads, width) = (gpt.heads, gpt.width);
        if width.is_multiple_of(heads) {
            return Ok(());
        }
        let place = self.first_of(&["heads", "width"]);
        let message = format!("a width of {width} cannot be shared by {heads} heads");
        Err(self.refuse(Status::Usage, BAD_SIZES, place, message, |found| {
            found
                .label("does not divide")
                .help(format!("--width {}", width.next_multiple_of(heads)))
        }))
    }

    /// That there is a text, and enough of it.
    fn check_data(&self, args: &TrainArgs) -> Result<(), CliError> {
        let ModelOptions::Gpt(gpt) = args.lower().model else { return Ok(()) };
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
                longest => format!("give more text, or `--block {longest}` at most"),
            };
            let message = error.to_string();
            self.refuse(Status::BadInput, TEXT_TOO_SHORT, place, message, |found| found.help(help))
        })
    }

    /// The length of a file that can be learned.
    fn check_text(&self, file: &Path) -> Result<usize, CliError> {
        let place = self.file("data", file);
        let cannot = |why: &str| {
            let message = format!("cannot read `{}`: {why}", file.display());
            let help = "give files with the text to learn, or leave `--data` out for a first try";
            self.refuse(Status::NoInput, TEXT_UNREADABLE, place, message, |found| found.help(help))
        };
        let found = fs::metadata(file).map_err(|error| cannot(&reason(&error)))?;
        if found.is_dir() {
            return Err(cannot("it is a directory"));
        }
        if !found.is_file() {
            return Err(cannot("it is no regular file"));
        }
        File::open(file).map_err(|error| cannot(&reason(&error)))?;
        if found.len() == 0 {
            let message = format!("`{}` is empty", file.display());
            return Err(self.refuse(Status::BadInput, TEXT_TOO_SHORT, place, message, |found| {
                found.label("no text to learn").help("leave it out, or fill it")
            }));
        }
        Ok(usize::try_from(found.len()).unwrap_or(usize::MAX))
    }

    /// A model that knows other bytes than the text has cannot go on with it.
    fn check_vocabulary(&self, args: &TrainArgs, saved: &Saved) -> Result<(), CliError> {
        let Identity::Gpt { vocabulary, bytes, .. } = &saved.model else { return Ok(()) };
        let opened = Corpus::open(&args.data);
        let corpus =
            opened.map_err(|error| CliError::new(corpus_status(&error), error.to_string()))?;
        let found = corpus.vocabulary().len();
        if found == *vocabulary && corpus.digest() == *bytes {
            return Ok(());
        }
        let differs = if found == *vocabulary {
            format!("has {found} different bytes, but not the same as")
        } else {
            format!("has {found} different bytes, not the {vocabulary} of")
        };
        let (what, place) = if args.data.is_empty() {
            ("the text of this project", self.value("resume"))
        } else {
            ("the text", self.value("data"))
        };
        let message = format!("{what} {differs} that which the checkpoint has learned");
        Err(self.refuse(Status::Config, CHECKPOINT_DIFFERS, place, message, |found| {
            found.help("give the `--data` that the run began with")
        }))
    }

    fn check_outputs(&self, args: &TrainArgs) -> Result<(), CliError> {
        if let Some(dir) = &args.checkpoint_dir {
            let is_file = fs::metadata(dir).is_ok_and(|found| !found.is_dir());
            let made = fs::create_dir_all(dir).and_then(|()| check_writable(dir));
            made.map_err(|error| {
                let why = if is_file { "it is a file".to_owned() } else { reason(&error) };
                self.cannot_write("checkpoint_dir", dir, &why, "name a directory of your own")
            })?;
        }
        for (flag, file) in [("metrics", &args.metrics), ("plot", &args.plot)] {
            let Some(file) = file else { continue };
            let writable = match fs::metadata(file) {
                Ok(found) if found.is_dir() => Err("it is a directory".to_owned()),
                Ok(_) => check_writable(file).map_err(|error| reason(&error)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
                    check_writable(parent.unwrap_or(Path::new("."))).map_err(|error| reason(&error))
                }
                Err(error) => Err(reason(&error)),
            };
            let help = "name a file in a directory that is there and can be written";
            writable.map_err(|why| self.cannot_write(flag, file, &why, help))?;
        }
        Ok(())
    }

    fn cannot_write(&self, flag: &str, path: &Path, why: &str, help: &str) -> CliError {
        let message = format!("cannot write `{}`: {why}", path.display());
        let place = self.value(flag);
        self.refuse(Status::CantCreate, CANNOT_WRITE, place, message, |found| found.help(help))
    }
}

fn check_writable(path: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::access(path, Access::WRITE_OK)?)
}

fn corpus_status(error: &CorpusError) -> Status {
    match error {
        CorpusError::Read { .. } => Status::NoInput,
        CorpusError::TooShort { .. } => Status::BadInput,
    }
}

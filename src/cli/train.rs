//! `remuda train`: the options of the bundled trainer, and what each of its workers does.

use std::cell::Cell;
use std::ffi::OsString;
use std::fmt::{Display, Write};
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, Parser, ValueEnum};

use super::args::{PlaceArgs, WatchArgs, WorkerArgs};
use super::check;
use super::error::CliError;
use super::lower::{self, Speaker};
use super::run;
use super::values::{AcceleratorArg, parse_positive_int};
use crate::agent;
use crate::base::{Status, clock, env_vars};
use crate::launch::Transport;
use crate::os::signals;
use crate::plan::Program;
use crate::report::{Terminal, print, print_error, say};
use crate::runtime::Group;
use crate::train::{
    AdamWOptions, CheckpointOptions, GptOptions, MlpOptions, ModelOptions, Progress, Schedule,
    Threads, TrainOptions, train,
};

/// The word that makes this executable a worker.
pub(super) const WORKER_COMMAND: &str = "train-worker";
/// Steps between evaluations are told by notes; whoever keeps the lines sees one of them when there
/// was none for this long.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// What `remuda train` trains, and how; where is decided by the launch options beside these.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Training", rename_all = "snake_case")]
pub(super) struct TrainArgs {
    /// What is trained: a GPT on a text, or a classifier on made-up samples
    #[arg(long, value_name = "MODEL", value_enum, default_value_t = ModelArg::Gpt)]
    pub(super) model: ModelArg,
    /// The text to learn: any files [default: a snapshot of this project's own text]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(super) data: Vec<PathBuf>,
    /// Steps of the whole run, those before `--resume` included
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse_positive_int)]
    pub(super) steps: u64,
    /// Samples of a micro-batch, per worker [default: 12 for gpt, 64 for mlp]
    #[arg(long, value_name = "N")]
    pub(super) batch_size: Option<NonZeroUsize>,
    /// Micro-batches of a step, per worker
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) accumulate: NonZeroUsize,
    /// Tokens that a GPT looks back on
    #[arg(long, value_name = "N", default_value = "64")]
    pub(super) block: NonZeroUsize,
    /// Blocks of a GPT, hidden layers of an MLP [default: 4 for gpt, 2 for mlp]
    #[arg(long, value_name = "N")]
    pub(super) layers: Option<NonZeroUsize>,
    /// Attention heads of a GPT
    #[arg(long, value_name = "N", default_value = "4")]
    pub(super) heads: NonZeroUsize,
    /// Features of a token or of a hidden layer [default: 128 for gpt, 1024 for mlp]
    #[arg(long, value_name = "N")]
    pub(super) width: Option<NonZeroUsize>,
    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value = "1e-3", value_parser = parse_positive)]
    pub(super) lr: f64,
    /// Learning rate of the last step [default: a tenth of --lr]
    #[arg(long, value_name = "RATE", value_parser = parse_amount)]
    pub(super) min_lr: Option<f64>,
    /// Steps until the learning rate is at its highest
    #[arg(long, value_name = "N", default_value = "100")]
    pub(super) warmup: u64,
    /// Memory of AdamW for gradients, 0 to 1
    #[arg(long, value_name = "BETA", default_value = "0.9", value_parser = parse_fraction)]
    pub(super) beta1: f64,
    /// Memory of AdamW for squares of gradients, 0 to 1
    #[arg(long, value_name = "BETA", default_value = "0.99", value_parser = parse_fraction)]
    pub(super) beta2: f64,
    /// Decay of weights
    #[arg(long, value_name = "RATE", default_value = "0.1", value_parser = parse_amount)]
    pub(super) weight_decay: f64,
    /// Largest norm of a gradient; 0 for no limit
    #[arg(long, value_name = "NORM", default_value = "1", value_parser = parse_amount)]
    pub(super) clip: f64,
    /// Initial values, batches and the sample follow from it
    #[arg(long, value_name = "N", default_value = "1337")]
    pub(super) seed: u64,
    /// Steps between evaluations on held-out data; 0 for none
    #[arg(long, value_name = "N", default_value = "100")]
    pub(super) eval_every: u64,
    /// Threads of every worker [default: OMP_NUM_THREADS, else 1]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
    /// Keep the run in this directory, at its end and on ^C
    #[arg(long, value_name = "DIR")]
    pub(super) checkpoint_dir: Option<PathBuf>,
    /// And every N steps
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    pub(super) save_every: Option<u64>,
    /// Go on from a checkpoint, or from the newest one in a directory
    #[arg(long, value_name = "PATH")]
    pub(super) resume: Option<PathBuf>,
    /// Write a JSON object a step into this file
    #[arg(long, value_name = "FILE")]
    pub(super) metrics: Option<PathBuf>,
    /// Draw the loss into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

/// See `--model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ModelArg {
    /// A character-level GPT.
    Gpt,
    /// A multi-layer perceptron, ten classes.
    Mlp,
}

impl TrainArgs {
    /// What the trainer is told.
    pub(super) fn lower(&self) -> Result<TrainOptions, CliError> {
        let default = |gpt, mlp| match self.model {
            ModelArg::Gpt => gpt,
            ModelArg::Mlp => mlp,
        };
        let batch_size = self.batch_size.map_or(default(12, 64), NonZeroUsize::get);
        let rate_min = self.min_lr.unwrap_or(self.lr / 10.0);
        if self.save_every.is_some() && self.checkpoint_dir.is_none() {
            return Err(CliError::usage("`--save_every` means nothing without `--checkpoint_dir`")
                .help("add `--checkpoint_dir DIR`"));
        }
        let checkpoint = self
            .checkpoint_dir
            .clone()
            .map(|dir| CheckpointOptions { dir, every: self.save_every });
        Ok(TrainOptions {
            model: self.lower_model()?,
            batch_size: NonZeroUsize::new(batch_size).expect("the defaults are not 0"),
            accumulate: self.accumulate,
            schedule: Schedule { rate: self.lr, rate_min, warmup: self.warmup, steps: self.steps },
            optimizer: AdamWOptions {
                beta1: self.beta1,
                beta2: self.beta2,
                weight_decay: self.weight_decay,
            },
            clip: (0.0 < self.clip).then_some(self.clip),
            seed: self.seed,
            threads: Threads::new(self.threads.unwrap_or_else(threads_of_environment)),
            eval_every: (0 < self.eval_every).then_some(self.eval_every),
            checkpoint,
            resume: self.resume.clone(),
            metrics: self.metrics.clone(),
            plot: self.plot.clone(),
            bucket_bytes: None,
        })
    }

    fn lower_model(&self) -> Result<ModelOptions, CliError> {
        let size = |given: Option<NonZeroUsize>, default| given.map_or(default, NonZeroUsize::get);
        match self.model {
            ModelArg::Gpt => {
                let (heads, width) = (self.heads.get(), size(self.width, 128));
                if !width.is_multiple_of(heads) {
                    let message = format!("a width of {width} cannot be shared by {heads} heads");
                    return Err(CliError::usage(message)
                        .help(format!("--width {}", width.next_multiple_of(heads))));
                }
                Ok(ModelOptions::Gpt(GptOptions {
                    block: self.block.get(),
                    layers: size(self.layers, 4),
                    heads,
                    width,
                    data: self.data.clone(),
                }))
            }
            ModelArg::Mlp if !self.data.is_empty() => {
                Err(CliError::usage("`--model mlp` makes its samples up and reads no `--data`"))
            }
            ModelArg::Mlp => Ok(ModelOptions::Mlp(MlpOptions {
                inputs: 784,
                layers: size(self.layers, 2),
                width: size(self.width, 1024),
                classes: 10,
            })),
        }
    }

    /// What cannot be read or written is told before the first step, not after the last.
    fn check_files(&self) -> Result<(), CliError> {
        for file in self.data.iter().chain(&self.resume) {
            let what = |error| {
                CliError::new(Status::NoInput, format!("cannot read `{}`: {error}", file.display()))
            };
            let found = File::open(file).and_then(|opened| opened.metadata()).map_err(what)?;
            if found.is_dir() && self.data.contains(file) {
                let message = format!("cannot read `{}`: it is a directory", file.display());
                return Err(CliError::new(Status::NoInput, message));
            }
        }
        let cannot_make = |path: &Path, error: &dyn Display| {
            let message = format!("cannot write `{}`: {error}", path.display());
            CliError::new(Status::CantCreate, message)
        };
        if let Some(dir) = &self.checkpoint_dir {
            std::fs::create_dir_all(dir).map_err(|error| cannot_make(dir, &error))?;
        }
        if let Some(plot) = &self.plot {
            let opened = File::options().append(true).create(true).open(plot);
            opened.map_err(|error| cannot_make(plot, &error))?;
        }
        Ok(())
    }

    /// The words that say the same: what a worker is started with.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut push = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([format!("--{name}").into(), value]);
            }
        };
        let number = |n: &dyn ToString| Some(n.to_string().into());
        let count = |n: Option<NonZeroUsize>| n.map(|n| n.to_string().into());
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        push("model", self.model.to_possible_value().map(|value| value.get_name().into()));
        for file in &self.data {
            push("data", Some(file.into()));
        }
        push("steps", number(&self.steps));
        push("batch_size", count(self.batch_size));
        push("accumulate", number(&self.accumulate));
        push("block", number(&self.block));
        push("layers", count(self.layers));
        push("heads", number(&self.heads));
        push("width", count(self.width));
        push("lr", number(&self.lr));
        push("min_lr", self.min_lr.and_then(|rate| number(&rate)));
        push("warmup", number(&self.warmup));
        push("beta1", number(&self.beta1));
        push("beta2", number(&self.beta2));
        push("weight_decay", number(&self.weight_decay));
        push("clip", number(&self.clip));
        push("seed", number(&self.seed));
        push("eval_every", number(&self.eval_every));
        push("threads", count(self.threads));
        push("checkpoint_dir", path(&self.checkpoint_dir));
        push("save_every", self.save_every.and_then(|n| number(&n)));
        push("resume", path(&self.resume));
        push("metrics", path(&self.metrics));
        push("plot", path(&self.plot));
        words
    }
}

/// What the launcher gave every worker, as it gives it to OpenMP.
fn threads_of_environment() -> NonZeroUsize {
    let value = env_vars::get_text(env_vars::OMP_NUM_THREADS);
    value.and_then(|text| text.parse().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// Train a small GPT or MLP on every slot with the bundled data-parallel runtime.
///
/// The same seed gives the same model, bit for bit, whether W workers accumulate A micro-batches
/// each or one worker accumulates W × A.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda train", bin_name = "remuda train", version, args_override_self = true)]
struct TrainFace {
    #[command(flatten)]
    train: TrainArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Parses, and starts this executable as the worker of every slot.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (mut face, typed) = super::parse::<TrainFace>(words)?;
    check::place(&face.place, &typed)?;
    check::watch(&face.watch, &typed)?;
    check::not_built(&typed)?;
    // What makes no sense is told once, here, and not by every worker.
    face.train.lower()?;
    face.train.check_files()?;
    let terminal = Terminal::look();
    if face.place.accelerator != Some(AcceleratorArg::Cpu) {
        let wanted = face.place.accelerator == Some(AcceleratorArg::Cuda);
        if wanted || 0 < lower::gpu_count() {
            say("note: there are no GPU kernels yet; every slot is CPU time\n", terminal.paint);
        }
        face.place.accelerator = Some(AcceleratorArg::Cpu);
    }
    let place = lower::place(&face.place, &typed, terminal)?;
    let program = match place.transport {
        Transport::Local => std::env::current_exe().map_err(|error| {
            CliError::new(Status::NotFound, format!("cannot find ourselves: {error}"))
        })?,
        Transport::Ssh(_) => agent::OWN_EXECUTABLE.into(),
    };
    let program = Program::Exec { program: program.into(), local_rank: false };
    let words = std::iter::once(WORKER_COMMAND.into()).chain(face.train.words()).collect();
    run::start(place, &face.watch, &WorkerArgs::default(), program, words, Speaker::Rank0, terminal)
}

/// The hidden form of the command that every worker is started with; alone, it is a group of one.
#[derive(Parser, Debug)]
#[command(name = "remuda train-worker", no_binary_name = true)]
struct WorkerLine {
    #[command(flatten)]
    train: TrainArgs,
}

/// A worker of the job. The first signal asks it to stop after the step that it is in; the loop
/// agrees with the other workers on which step that is.
pub(super) fn worker_main(words: Vec<OsString>) -> Result<Status, CliError> {
    let line =
        WorkerLine::try_parse_from(words).map_err(|error| CliError::usage(error.to_string()))?;
    let stop = signals::stop_flag(&[libc::SIGINT, libc::SIGTERM]);
    let group =
        Group::from_env().map_err(|error| CliError::new(Status::Config, error.to_string()))?;
    work(&line.train, &group, &|| stop.load(Ordering::Relaxed))
}

/// Trains as one worker of `group`, and prints what rank 0 has to tell. `stop` is asked between steps.
pub(super) fn work(
    args: &TrainArgs,
    group: &Group,
    stop: &dyn Fn() -> bool,
) -> Result<Status, CliError> {
    let options = args.lower()?;
    let shown = Cell::new(None);
    let watch = &mut |progress: &Progress| show(progress, &shown);
    match train(group, &options, stop, watch) {
        Ok(_) => Ok(Status::Success),
        Err(error) => {
            let mut text = format!("remuda train: rank {}: ", group.rank());
            writeln!(text, "{error}").expect("a string takes everything");
            print_error(&text);
            Ok(error.status())
        }
    }
}

/// What nobody can be shown is no reason to stop training; the metrics are in their file.
fn print_progress(text: &str) {
    let _ = print(text);
}

/// Prints a line: of steps, the first, the last, those that were evaluated, and one now and then.
fn show(progress: &Progress, shown: &Cell<Option<Instant>>) {
    if let Progress::Stepped(report) = progress {
        let now = clock::now();
        let is_due = shown.get().is_none_or(|last| QUIET_MAX <= now - last);
        if report.val_loss.is_none() && report.step < report.steps && !is_due {
            return;
        }
        shown.set(Some(now));
    }
    print_progress(&format!("{progress}\n"));
}

/// A finite number above 0.
fn parse_positive(text: &str) -> Result<f64, String> {
    parse_checked(text, "a number above 0", |x| 0.0 < x)
}

/// A finite number, 0 or more.
fn parse_amount(text: &str) -> Result<f64, String> {
    parse_checked(text, "a number, 0 or more", |x| 0.0 <= x)
}

/// A number from 0 to below 1.
fn parse_fraction(text: &str) -> Result<f64, String> {
    parse_checked(text, "a number from 0 to below 1", |x| (0.0..1.0).contains(&x))
}

fn parse_checked(text: &str, wanted: &str, fits: fn(f64) -> bool) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&x: &f64| x.is_finite() && fits(x));
    number.ok_or_else(|| format!("expected {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser, Debug)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        train: TrainArgs,
    }

    fn parse(line: &str) -> Result<TrainArgs, String> {
        let parsed = Line::try_parse_from(line.split_whitespace());
        parsed.map(|line| line.train).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_words(line: &str) {
        let args = parse(line).expect("the line is fine");
        let again = Line::try_parse_from(args.words()).expect("words are a line again");
        assert_eq!(again.train, args);
    }

    #[test]
    fn words_say_the_same() {
        check_words("");
        check_words("--model mlp --layers 3 --width 96 --batch_size 5 --threads 2 --lr 0.3");
        check_words(
            "--data a b --data c --min_lr 0 --clip 0 --eval_every 0 --seed 18446744073709551615",
        );
        check_words("--checkpoint_dir d --save_every 7 --resume r --metrics m --plot p --lr 1e-30");
    }

    #[track_caller]
    fn check_refused(line: &str, part: &str) {
        let message = match parse(line) {
            Err(message) => message,
            Ok(args) => match args.lower() {
                Err(CliError::Line { message, .. }) => message,
                other => panic!("`{line}` is accepted: {other:?}"),
            },
        };
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn lines_that_make_no_sense() {
        check_refused("--width 100 --heads 8", "a width of 100 cannot be shared by 8 heads");
        check_refused("--model mlp --data x", "reads no `--data`");
        check_refused("--lr 0", "expected a number above 0");
        check_refused("--beta2 1", "expected a number from 0 to below 1");
        check_refused("--clip NaN", "expected a number, 0 or more");
        check_refused("--steps 0", "it is at least 1");
        check_refused("--batch_size 0", "invalid value '0'");
        check_refused("--save_every 3", "--checkpoint_dir");
        check_refused("--step 3", "unexpected argument '--step'");
    }

    #[test]
    fn defaults_depend_on_the_model() {
        let gpt = parse("").expect("no options").lower().expect("they make sense");
        assert_eq!(gpt.batch_size.get(), 12);
        assert!(
            matches!(&gpt.model, ModelOptions::Gpt(gpt) if (gpt.layers, gpt.width) == (4, 128))
        );
        let mlp = parse("--model mlp").expect("one option").lower().expect("it makes sense");
        assert_eq!(mlp.batch_size.get(), 64);
        assert!(
            matches!(&mlp.model, ModelOptions::Mlp(mlp) if (mlp.layers, mlp.width) == (2, 1024))
        );
    }
}

//! Checks of the checkpoint from which a run continues: a run has the sizes and the text with which
//! it began.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, Status};
use crate::cli::command::optimizer_text::show_settings;
use crate::cli::command::train::args::TrainArgs;
use crate::cli::command::train::codes::{CHECKPOINT_DIFFERS, CHECKPOINT_UNUSABLE};
use crate::cli::command::train::sizes::has_shards;
use crate::cli::command::train::typed_line::TypedLine;
use crate::cli::command::train::values::ModelArg;
use crate::cli::error::CliError;
use crate::launch::{KeptState, NewestStep};
use crate::report::with_disk_timeout;
use crate::runtime::checkpoint::{CheckedBytes, OpenError};
use crate::runtime::optim::Optimizer;
use crate::train::{
    ALL_DAMAGED_HELP, Corpus, ModelId, SavedTraining, TOKENS_OF_SHARDS, find_undamaged,
};

/// Limit of the search for a checkpoint after a failure, in which so much is read as there is time for.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// Time after which a file system that has not responded is given up.
const HANG_LIMIT: Duration = Duration::from_secs(3);
/// Limit of the search for a checkpoint in the place of a damaged one.
const UNDAMAGED_LIMIT: Duration = Duration::from_secs(10);

/// Number of rates by which two schedules are compared.
const COMPARED_RATES: u64 = 64;

/// What to do if a checkpoint cannot be used, and no better one is known.
const OTHER_CHECKPOINT_HELP: &str =
    "use another checkpoint, or leave `--resume` out to start a new run";

pub(super) fn find_saved(
    line: &TypedLine<'_>,
    path: &Path,
    inspect: fn(&Path) -> Result<SavedTraining, OpenError>,
) -> Result<SavedTraining, CliError> {
    let answer = with_disk_timeout(|| fs::metadata(path).map(drop));
    let hangs = answer.err().filter(|error| error.kind() == io::ErrorKind::TimedOut);
    let found = match hangs {
        Some(source) => Err(OpenError::Read { path: path.to_owned(), source }),
        None => inspect(path),
    };
    found.map_err(|error| {
        let of_train = "use a checkpoint of `remuda train`, or a directory of them".to_owned();
        let (status, help) = match &error {
            OpenError::Read { .. } => (Status::NoInput, of_train),
            OpenError::Empty { .. } => (
                Status::NoInput,
                "`--checkpoint_dir` saves checkpoints; leave `--resume` out to start a new run"
                    .to_owned(),
            ),
            OpenError::NotCheckpoint { .. } => (Status::BadInput, of_train),
            OpenError::Newer { .. } => {
                (Status::BadInput, "use the remuda that has saved it, or a newer one".to_owned())
            }
            OpenError::Damaged { .. } => (Status::BadInput, help_of_damaged(path)),
            OpenError::AllDamaged { .. } => (Status::BadInput, ALL_DAMAGED_HELP.to_owned()),
            OpenError::OtherModel { .. }
            | OpenError::Request { .. }
            | OpenError::Ranks { .. }
            | OpenError::Group(_) => (Status::BadInput, OTHER_CHECKPOINT_HELP.to_owned()),
        };
        let message = error.to_string();
        let place = line.0.value_or_end("resume");
        line.refuse(status, CHECKPOINT_UNUSABLE, place, message, |found| found.help(help))
    })
}

/// Returns what to do if the newest checkpoint of a directory, or the one that was named, is damaged.
fn help_of_damaged(path: &Path) -> String {
    match find_undamaged(path, UNDAMAGED_LIMIT) {
        Some((SavedTraining { path, step, .. }, checked)) => {
            let (path, caveat) = (quoted(&path), checked.caveat());
            format!("the newest undamaged checkpoint has step {step}{caveat}: `--resume {path}`")
        }
        None => OTHER_CHECKPOINT_HELP.to_owned(),
    }
}

/// Takes sizes that were not typed from the checkpoint, and reports every contradiction: a run
/// continues with the sizes and the text with which it began.
pub(super) fn apply_saved(
    line: &TypedLine<'_>,
    args: &mut TrainArgs,
    saved: &SavedTraining,
    has_text: bool,
) -> Result<(), CliError> {
    let size = |saved| NonZeroUsize::new(saved).unwrap_or(NonZeroUsize::MIN);
    let mut findings = Vec::new();
    // An MLP reads no text; that the model differs is enough.
    let reads_text = has_text && args.model() != ModelArg::Mlp;
    match saved.model {
        ModelId::Gpt { architecture, layers, heads, width, block, vocabulary, ref bytes } => {
            findings.extend([
                (bytes == TOKENS_OF_SHARDS)
                    .then(|| {
                        check_agreement(line, "vocabulary", &mut args.vocabulary, size(vocabulary))
                    })
                    .flatten(),
                check_agreement(line, "model", &mut args.model, ModelArg::of(architecture)),
                check_agreement(line, "layers", &mut args.layers, size(layers)),
                check_agreement(line, "heads", &mut args.heads, size(heads)),
                check_agreement(line, "width", &mut args.width, size(width)),
                check_agreement(line, "block", &mut args.block, size(block)),
                reads_text.then(|| check_text_agreement(line, args, saved)).flatten(),
            ]);
        }
        ModelId::Mlp { layers, width, teacher, .. } => {
            findings.extend([
                check_agreement(line, "model", &mut args.model, ModelArg::Mlp),
                check_agreement(line, "layers", &mut args.layers, size(layers)),
                check_agreement(line, "width", &mut args.width, size(width)),
                check_agreement(line, "seed", &mut args.seed, teacher),
            ]);
        }
    }
    let findings: Vec<Findings> = findings.into_iter().flatten().collect();
    if findings.is_empty() {
        return Ok(());
    }
    Err(CliError::Findings { status: Status::Config, findings })
}

fn check_agreement<T: Copy + PartialEq + ToString>(
    line: &TypedLine<'_>,
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
    Some(line.0.refuse(&[line.0.value_or_end(flag), line.0.value_or_end("resume")], make).findings)
}

/// Returns an error if the text has other bytes than the checkpoint's model, which could not
/// continue with it. If the text cannot be read, another check reports that.
fn check_text_agreement(
    line: &TypedLine<'_>,
    args: &TrainArgs,
    saved: &SavedTraining,
) -> Option<Findings> {
    let ModelId::Gpt { vocabulary, bytes, .. } = &saved.model else { return None };
    let has_shards = has_shards(&args.data);
    if has_shards || bytes == TOKENS_OF_SHARDS {
        return check_tokens_agreement(line, has_shards, bytes == TOKENS_OF_SHARDS);
    }
    let corpus = Corpus::open(&args.data).ok()?;
    let found = corpus.vocabulary().len();
    if found == *vocabulary && corpus.digest() == *bytes {
        return None;
    }
    let differs = if found == *vocabulary {
        "it has other bytes".to_owned()
    } else {
        format!("it has {found} different bytes instead of {vocabulary}")
    };
    let (what, place) = if args.data.is_empty() {
        ("the built-in text", line.0.value_or_end("resume"))
    } else {
        ("the text", line.0.value_or_end("data"))
    };
    let message = format!("{what} is not the text of the checkpoint: {differs}");
    let make = |spans: &[_]| {
        Diagnostic::error(CHECKPOINT_DIFFERS, spans[0], message)
            .help("use the `--data` of the run that saved the checkpoint")
    };
    Some(line.0.refuse(&[place], make).findings)
}

/// Returns an error if a run with shards of tokens would continue one with a text, or the other way round.
fn check_tokens_agreement(
    line: &TypedLine<'_>,
    has_shards: bool,
    had_shards: bool,
) -> Option<Findings> {
    let (now, before) = match (has_shards, had_shards) {
        (true, false) => ("shards of tokens", "a text"),
        (false, true) => ("a text", "shards of tokens"),
        (true, true) | (false, false) => return None,
    };
    let message = format!("the data is {now}, and that of the checkpoint was {before}");
    let make = |spans: &[_]| {
        Diagnostic::error(CHECKPOINT_DIFFERS, spans[0], message)
            .help("use the `--data` of the run that saved the checkpoint")
    };
    Some(line.0.refuse(&[line.0.value_or_end("data")], make).findings)
}

/// Sets the options that a checkpoint determines: the batch size, the seed, and, if the workers can
/// share them evenly, the micro-batches. Typed options take precedence.
pub(super) fn apply_samples(args: &mut TrainArgs, saved: &SavedTraining, workers: usize) {
    let Some(samples) = saved.samples else { return };
    args.seed.get_or_insert(samples.seed);
    args.batch_size = args.batch_size.or(NonZeroUsize::new(samples.batch_size as usize));
    let (lanes, workers) = (samples.lanes as usize, workers.max(1));
    let each = lanes.is_multiple_of(workers).then(|| lanes / workers);
    args.accumulate = args.accumulate.or(each.and_then(NonZeroUsize::new));
}

/// Compares the optimizer with that of the checkpoint. Returns a note if its settings differ.
///
/// # Errors
/// If the checkpoint has no state for it.
pub(super) fn check_optimizer(
    line: &TypedLine<'_>,
    now: &Optimizer,
    saved: &SavedTraining,
) -> Result<String, CliError> {
    let Some(before) = saved.optimizer.as_ref().filter(|before| *before != now) else {
        return Ok(String::new());
    };
    let (shown, shown_before) = (show_settings(now), show_settings(before));
    if now.state_names() == before.state_names() {
        return Ok(format!(
            "note: the optimizer is {} now, {} when the checkpoint was saved\n",
            shown.join(", "),
            shown_before.join(", ")
        ));
    }
    let (name, name_before) = (&shown[0], &shown_before[0]);
    let message =
        format!("the optimizer is {name}, but the checkpoint has the state of {name_before}");
    let help =
        "continue with the optimizer of the checkpoint, or leave `--resume` out to start a new run";
    let decides =
        if line.0.last("deepspeed_config").is_some() { "deepspeed_config" } else { "resume" };
    let place = line.0.value_or_end(decides);
    Err(line.refuse(Status::Config, CHECKPOINT_DIFFERS, place, message, |found| found.help(help)))
}

/// Returns a note if the schedule of learning rates has another length than when the checkpoint was saved, because
/// `--steps` has changed: the rate jumps.
pub(super) fn schedule_note(args: &TrainArgs, saved: &SavedTraining) -> String {
    let Some((before, done)) = &saved.schedule else { return String::new() };
    let now = args.resolve().engine.schedule;
    let (Some(steps), Some(steps_before)) = (now.steps(), before.steps()) else {
        return String::new();
    };
    // A length that was typed, or that a file sets, is meant.
    if args.decay_steps.is_some() || steps != args.steps || steps == steps_before {
        return String::new();
    }
    let rates = [now.rate(*done), before.rate(*done)];
    let is_same = |update: u64| now.rate(update).to_bits() == before.rate(update).to_bits();
    let last = steps.max(steps_before);
    let stride = last.saturating_sub(*done) / COMPARED_RATES + 1;
    if (*done..=last).step_by(stride as usize).all(is_same) {
        return String::new();
    }
    let next = saved.step + 1;
    let jump = if is_same(*done) {
        String::new()
    } else {
        format!(", so that of step {next} is {:.2e} instead of {:.2e}", rates[0], rates[1])
    };
    format!(
        "note: the learning rate falls until step {steps} (`--steps`), when the checkpoint was saved until step \
         {steps_before}{jump}\nhelp: `--decay_steps {steps_before}` keeps the old schedule\n"
    )
}

/// Describes the checkpoints of a run for the report of a failure.
pub(super) fn kept_state(args: &TrainArgs) -> Option<KeptState> {
    let advice = match &args.resume {
        None => "add `--resume auto`".to_owned(),
        Some(_) if args.is_auto() => "type the same command again".to_owned(),
        Some(path) => format!("`--resume auto` instead of `--resume {}`", quoted(path)),
    };
    Some(KeptState {
        dir: args.checkpoint_dir.clone()?,
        is_saved_regularly: args.save_every.is_some(),
        repeats_line: args.is_auto(),
        advice,
        newest: newest_step,
    })
}

/// Returns the step of the newest checkpoint of a directory that is not damaged. A file system that hangs is given up.
fn newest_step(dir: &Path) -> Option<NewestStep> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let dir = dir.to_owned();
    let read = move || {
        let found = find_undamaged(&dir, READ_LIMIT).map(|(saved, checked)| match checked {
            CheckedBytes::All => NewestStep::Undamaged(saved.step),
            CheckedBytes::Sizes => NewestStep::NotRead(saved.step),
        });
        let _ = sender.send(found);
    };
    thread::Builder::new().name("disk".to_owned()).spawn(read).ok()?;
    receiver.recv_timeout(HANG_LIMIT).ok()?
}

/// Returns a warning if a training continues from a checkpoint and is not saved.
pub(super) fn unsaved_warning(args: &TrainArgs) -> String {
    let Some(from) = args.resume.as_ref().filter(|_| args.checkpoint_dir.is_none()) else {
        return String::new();
    };
    let from = quoted(from);
    format!(
        "warning: the training continues from `{from}`, but nothing is saved\n\
         help: to save it, add `--checkpoint_dir DIR`\n"
    )
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

//! Checks of the checkpoint from which a run continues: a run has the sizes and the text with which
//! it began.

use std::num::NonZeroUsize;
use std::path::Path;
use std::{fs, io};

use crate::base::{Diagnostic, Findings, Status};
use crate::cli::command::train::args::{ModelArg, TrainArgs};
use crate::cli::command::train::codes::{CHECKPOINT_DIFFERS, CHECKPOINT_UNUSABLE};
use crate::cli::command::train::typed_line::TypedLine;
use crate::cli::error::CliError;
use crate::report::text::show_io_error;
use crate::report::with_disk_timeout;
use crate::train::{CheckpointError, CheckpointInfo, Corpus, ModelId};

pub(super) fn find_saved(
    line: &TypedLine<'_>,
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
                format!("cannot read checkpoint `{}`: {}", path.display(), show_io_error(source)),
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
        let place = line.0.value_or_end("resume");
        line.refuse(status, CHECKPOINT_UNUSABLE, place, message, |found| found.help(help))
    })
}

/// Takes sizes that were not typed from the checkpoint, and reports every contradiction: a run
/// continues with the sizes and the text with which it began.
pub(super) fn apply_saved(
    line: &TypedLine<'_>,
    args: &mut TrainArgs,
    saved: &CheckpointInfo,
    has_text: bool,
) -> Result<(), CliError> {
    let size = |saved| NonZeroUsize::new(saved).unwrap_or(NonZeroUsize::MIN);
    let mut findings = Vec::new();
    match saved.model {
        ModelId::Gpt { layers, heads, width, block, .. } => findings.extend([
            check_agreement(line, "model", &mut args.model, ModelArg::Gpt),
            check_agreement(line, "layers", &mut args.layers, size(layers)),
            check_agreement(line, "heads", &mut args.heads, size(heads)),
            check_agreement(line, "width", &mut args.width, size(width)),
            check_agreement(line, "block", &mut args.block, size(block)),
            has_text.then(|| check_text_agreement(line, args, saved)).flatten(),
        ]),
        ModelId::Mlp { layers, width, teacher, .. } => findings.extend([
            check_agreement(line, "model", &mut args.model, ModelArg::Mlp),
            check_agreement(line, "layers", &mut args.layers, size(layers)),
            check_agreement(line, "width", &mut args.width, size(width)),
            check_agreement(line, "seed", &mut args.seed, teacher),
        ]),
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
    saved: &CheckpointInfo,
) -> Option<Findings> {
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
        ("the text of this project", line.0.value_or_end("resume"))
    } else {
        ("the text", line.0.value_or_end("data"))
    };
    let message = format!("{what} {differs} the text of the checkpoint");
    let make = |spans: &[_]| {
        Diagnostic::error(CHECKPOINT_DIFFERS, spans[0], message)
            .help("use the `--data` of the run that saved the checkpoint")
    };
    Some(line.0.refuse(&[place], make).findings)
}

/// Sets the options that a checkpoint determines: the batch size, the seed, and, if the workers can
/// share them evenly, the micro-batches. Typed options take precedence.
pub(super) fn apply_samples(args: &mut TrainArgs, saved: &CheckpointInfo, workers: usize) {
    let Some(samples) = saved.samples else { return };
    args.seed.get_or_insert(samples.seed);
    args.batch_size = args.batch_size.or(NonZeroUsize::new(samples.batch_size));
    let each = samples.lanes.is_multiple_of(workers.max(1)).then(|| samples.lanes / workers.max(1));
    args.accumulate = args.accumulate.or(each.and_then(NonZeroUsize::new));
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

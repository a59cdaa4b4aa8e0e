//! Checks of sizes: that they fit each other, the text and the memory of this machine.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::base::Status;
use crate::cli::command::train::args::TrainArgs;
use crate::cli::command::train::codes::{BAD_SIZES, TEXT_TOO_SHORT, TEXT_UNREADABLE, TOO_LARGE};
use crate::cli::command::train::typed_line::TypedLine;
use crate::cli::command::train::values::ModelArg;
use crate::cli::error::CliError;
use crate::report::text::{show_bytes, show_count, show_io_error};
use crate::report::with_disk_timeout;
use crate::runtime::engine::Sharding;
use crate::train::{
    Corpus, GptOptions, ModelOptions, ShardError, TokenData, TokenShard, WorkerMemory,
    activation_bytes,
};

pub(super) fn check_heads(line: &TypedLine<'_>, args: &TrainArgs) -> Result<(), CliError> {
    let ModelOptions::Gpt(gpt) = args.resolve().model else { return Ok(()) };
    let (heads, width) = (gpt.heads, gpt.width);
    if width.is_multiple_of(heads) {
        return Ok(());
    }
    let place = line.first_of(&["heads", "width"]);
    let message = format!("a width of {width} is not a multiple of {heads} heads");
    Err(line.refuse(Status::Usage, BAD_SIZES, place, message, |found| {
        found.label("not divisible").help(match width.checked_next_multiple_of(heads) {
            Some(width) => format!("use `--width {width}`"),
            None => format!("use `--heads 1`, or a width that is a multiple of {heads}"),
        })
    }))
}

/// Checks that there is a text, and that it is long enough. Returns the size of the vocabulary of shards.
pub(super) fn check_data(
    line: &TypedLine<'_>,
    args: &TrainArgs,
) -> Result<Option<usize>, CliError> {
    let ModelOptions::Gpt(gpt) = args.resolve().model else { return Ok(None) };
    if has_shards(&gpt.data) {
        return check_shards(line, &gpt).map(Some);
    }
    if gpt.vocabulary.is_some() {
        let message = "`--vocabulary` is for shards of tokens";
        let place = line.0.name_or_end("vocabulary");
        return Err(line.refuse(Status::Usage, BAD_SIZES, place, message.to_owned(), |found| {
            found
                .label("the vocabulary of a text is its bytes")
                .help("leave it out, or give shards of `remuda tokenize` as `--data`")
        }));
    }
    let mut len = 0usize;
    for file in &gpt.data {
        len = len.saturating_add(check_text(line, file)?);
    }
    let is_own = gpt.data.is_empty();
    let len = if is_own { Corpus::embedded_len() } else { len };
    Corpus::check_len(len, gpt.block).map_err(|error| {
        let place = line.first_of(if is_own { &["block"] } else { &["data", "block"] });
        let longest = (len / 10).saturating_sub(1);
        let help = match longest {
            0 => "a text needs at least some hundred bytes".to_owned(),
            longest => format!("use more text, or at most `--block {longest}`"),
        };
        let message = error.to_string();
        line.refuse(Status::BadInput, TEXT_TOO_SHORT, place, message, |found| found.help(help))
    })?;
    Ok(None)
}

/// Whether the data are shards of tokens and no text; a file that does not answer is not one.
pub(super) fn has_shards(files: &[PathBuf]) -> bool {
    let is_shard = |file: &PathBuf| {
        let answers = with_disk_timeout(|| fs::metadata(file).map(drop)).is_ok();
        answers && file.is_file() && TokenShard::is_shard(file)
    };
    files.first().is_some_and(is_shard)
}

/// Checks shards of tokens. Returns the size of their vocabulary.
fn check_shards(line: &TypedLine<'_>, gpt: &GptOptions) -> Result<usize, CliError> {
    let shards = TokenData::open(&gpt.data);
    let vocabulary = shards.and_then(|shards| shards.vocabulary_for(gpt.block, gpt.vocabulary));
    vocabulary.map_err(|error| {
        let of_file = match &error {
            ShardError::Read { path, .. }
            | ShardError::Format { path, .. }
            | ShardError::Length { path, .. } => Some(line.file("data", path)),
            _ => None,
        };
        let code = code_of_shards(&error);
        let (status, flag, help) = match &error {
            ShardError::Read { .. } => (Status::NoInput, "data", "use shards that you can read"),
            ShardError::TooFewTokens { .. } => {
                (Status::BadInput, "data", "use more tokens, or a smaller `--block`")
            }
            ShardError::OutsideVocabulary { .. } => (
                Status::BadInput,
                "vocabulary",
                "leave `--vocabulary` out, or give the size of the vocabulary with which the text was tokenized",
            ),
            ShardError::Length { .. } => (
                Status::BadInput,
                "data",
                "the file is damaged: copy it again, or make it again with `remuda tokenize`",
            ),
            _ => (
                Status::BadInput,
                "data",
                "give shards only, or text files only; `remuda tokenize` makes shards of a text",
            ),
        };
        let place = of_file.unwrap_or_else(|| line.0.value_or_end(flag));
        line.refuse(status, code, place, error.to_string(), |found| found.help(help))
    })
}

/// Code of an error of shards.
pub(super) fn code_of_shards(error: &ShardError) -> &'static str {
    match error {
        ShardError::TooFewTokens { .. } => TEXT_TOO_SHORT,
        ShardError::OutsideVocabulary { .. } => BAD_SIZES,
        _ => TEXT_UNREADABLE,
    }
}

/// Checks a file of text, and returns its length.
fn check_text(line: &TypedLine<'_>, file: &Path) -> Result<usize, CliError> {
    let place = line.file("data", file);
    let cannot = |why: &str| {
        let message = format!("cannot read `{}`: {why}", file.display());
        let help =
            "use files with training text, or leave `--data` out to train on the built-in text";
        line.refuse(Status::NoInput, TEXT_UNREADABLE, place, message, |found| found.help(help))
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
        return Err(line.refuse(Status::BadInput, TEXT_TOO_SHORT, place, message, |found| {
            found.label("no training text").help("leave it out, or use another file")
        }));
    }
    Ok(usize::try_from(found.len()).unwrap_or(usize::MAX))
}

/// Checks that this machine has enough memory for the workers. If the available memory is not
/// known, the workers check it at their start.
pub(super) fn check_memory(
    line: &TypedLine<'_>,
    args: &TrainArgs,
    vocabulary: usize,
    workers: usize,
    available: Option<u64>,
) -> Result<(), CliError> {
    let Some(available) = available.map(|bytes| bytes as f64) else { return Ok(()) };
    let mut options = args.resolve();
    let forecast = WorkerMemory::forecast(&options, vocabulary, workers);
    let total = workers as f64 * forecast.total();
    if total <= available {
        return Ok(());
    }
    let typed = options.batch_size.get();
    let others = forecast.total() - forecast.activations;
    let largest = largest_below(typed, |samples| {
        options.batch_size = samples;
        workers as f64 * (others + activation_bytes(&options, vocabulary)) <= available
    });
    let (place, help) = if let Some(samples) = largest {
        let help = if recomputing_fits(args, vocabulary, workers, available) {
            format!("use `--activation_checkpointing`, or at most `--batch_size {samples}`")
        } else {
            format!("use at most `--batch_size {samples}`")
        };
        (line.first_of(&["batch_size"]), help)
    } else if let Some(stage) = stage_that_fits(args, vocabulary, workers, available) {
        (line.first_of(&["stage"]), format!("divide the state over the workers: `--stage {stage}`"))
    } else {
        let (sizes, names): (&[_], _) = match args.model() {
            ModelArg::Gpt | ModelArg::Gpt2 => {
                (&["width", "layers", "block"], "`--width`, `--layers`, `--block`")
            }
            ModelArg::Mlp => (&["width", "layers"], "`--width`, `--layers`"),
        };
        let help = format!(
            "one sample per worker is already too much: use a smaller model ({names}) or fewer \
             workers"
        );
        (line.first_of(sizes), help)
    };
    let (total, available) = (show_bytes(total), show_bytes(available));
    let message = format!(
        "{} would need about {total} of memory, {available} are available",
        show_count(workers, "worker")
    );
    Err(line.refuse(Status::OsLimit, TOO_LARGE, place, message, |found| found.help(help)))
}

/// Whether the run fits if each block computes its activations again.
fn recomputing_fits(args: &TrainArgs, vocabulary: usize, workers: usize, available: f64) -> bool {
    let mut options = args.resolve();
    let is_new = options.engine.plan.recompute == 0;
    options.engine.plan.recompute = 1;
    let forecast = WorkerMemory::forecast(&options, vocabulary, workers);
    is_new && workers as f64 * forecast.total() <= available
}

/// The first stage above that of the line with which the run fits.
fn stage_that_fits(
    args: &TrainArgs,
    vocabulary: usize,
    workers: usize,
    available: f64,
) -> Option<u8> {
    let mut options = args.resolve();
    let typed = options.engine.sharding;
    let above = Sharding::ALL.into_iter().filter(|stage| typed < *stage);
    let mut fits = above.filter(|stage| {
        options.engine.sharding = *stage;
        let forecast = WorkerMemory::forecast(&options, vocabulary, workers);
        workers as f64 * forecast.total() <= available
    });
    fits.next().map(Sharding::stage)
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

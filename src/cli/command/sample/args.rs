//! The options of `remuda sample`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use crate::cli::line::BadValue;

/// Continue a text with the GPT of a checkpoint.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda sample",
    bin_name = "remuda sample",
    version,
    rename_all = "snake_case",
    after_help = "The same checkpoint, prompt and seed give the same text. A model that was trained on a text \
                  needs that text as `--data`, because its tokens are the bytes of it; a model that was trained \
                  on shards needs the vocabulary of `remuda tokenize` as `--vocab`."
)]
pub(super) struct SampleArgs {
    /// Checkpoint of `remuda train`, or directory of checkpoints, of which the latest is used
    #[arg(value_name = "DIR")]
    pub(super) checkpoint: PathBuf,
    /// Text that the model continues [default: a line break; with --vocab, the start of a text]
    #[arg(long, value_name = "TEXT")]
    pub(super) prompt: Option<String>,
    /// Number of tokens to generate; with --vocab, generation stops earlier at the end of a text
    #[arg(long, value_name = "N", default_value = "256")]
    pub(super) tokens: NonZeroUsize,
    /// Below 1, likely tokens become more likely; 0: always the most likely one
    #[arg(long, value_name = "T", default_value = "0.8", value_parser = parse_temperature)]
    pub(super) temperature: f32,
    /// Draw one of the N most likely tokens [default: of all]
    #[arg(long, value_name = "N")]
    pub(super) top_k: Option<NonZeroUsize>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value = "1337")]
    pub(super) seed: u64,
    /// Vocabulary of the shards: `tokenizer.json`, a `.tiktoken` file, or a directory with one or with
    /// `vocab.json` and `merges.txt`
    #[arg(long, value_name = "PATH")]
    pub(super) vocab: Option<PathBuf>,
    /// Text of the training [default: the built-in text, as for `remuda train`]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(super) data: Vec<PathBuf>,
    /// Threads [default: OMP_NUM_THREADS, else 1]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
    /// Print JSON: every token with its text and its log probability
    #[arg(long)]
    pub(super) json: bool,
}

fn parse_temperature(text: &str) -> Result<f32, BadValue> {
    let number: Option<f32> = text.parse().ok().filter(|t: &f32| t.is_finite() && 0.0 <= *t);
    number.ok_or_else(|| {
        BadValue::new("expected a number from 0").help("write a value such as `0.8`")
    })
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    SampleArgs::command()
}

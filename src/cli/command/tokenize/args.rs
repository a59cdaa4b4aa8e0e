//! The options of `remuda tokenize`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use crate::train::TokenType;

/// Write the tokens of texts as shards, which trainings read.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda tokenize",
    bin_name = "remuda tokenize",
    version,
    rename_all = "snake_case",
    after_help = "Tokens are made by byte-level BPE with the vocabulary that you give; nothing is \
                  downloaded. Shards have the format of llm.c: 256 numbers of 32 bits, then the tokens. \
                  They get their names when all of them are on the disk."
)]
pub(super) struct TokenizeArgs {
    /// Texts in UTF-8; `-` is standard input
    #[arg(required = true, value_name = "TEXT")]
    pub(super) texts: Vec<PathBuf>,
    /// Shard to write, such as `train.bin`
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Vocabulary: `tokenizer.json`, a `.tiktoken` file, or a directory with one or with `vocab.json` and
    /// `merges.txt`
    #[arg(long, alias = "tokenizer", value_name = "PATH")]
    pub(super) vocab: PathBuf,
    /// Type of the tokens [default: u16 if the vocabulary fits, else u32]
    #[arg(long, value_enum)]
    pub(super) dtype: Option<TokenTypeArg>,
    /// Tokens after which the next shard begins; numbers are added to the name: `train_000000.bin`
    #[arg(long, value_name = "N")]
    pub(super) shard_tokens: Option<NonZeroUsize>,
    /// Special token before each text, or `none`; without it `<|endoftext|>`, else `<|begin_of_text|>`
    #[arg(long, value_name = "TOKEN")]
    pub(super) text_separator: Option<String>,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
    /// Replace files that exist
    #[arg(long)]
    pub(super) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TokenTypeArg {
    /// 2 bytes for a token, up to 65,535
    U16,
    /// 4 bytes for a token
    U32,
}

impl TokenTypeArg {
    pub(super) fn token_type(self) -> TokenType {
        match self {
            Self::U16 => TokenType::U16,
            Self::U32 => TokenType::U32,
        }
    }
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    TokenizeArgs::command()
}

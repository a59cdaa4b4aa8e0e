//! Tokenizes the texts of a line, and prints what was written.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::Path;

use serde::Serialize;

use crate::base::Status;
use crate::cli::command::parse::parse;
use crate::cli::command::tokenize::args::{TokenTypeArg, TokenizeArgs};
use crate::cli::command::tokenize::problems::{
    refuse_empty, refuse_separator, refuse_shard, refuse_text, refuse_vocabulary,
};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::report::print;
use crate::report::text::{show_bytes, show_count};
use crate::train::{
    ExistingFiles, ShardOptions, ShardWriter, TextFile, TextFileError, TokenType, Tokenizer,
    WrittenShard,
};

/// Value of `--text_separator` that is no token.
const NO_SEPARATOR: &str = "none";
/// Version of the document of `--json`.
const DOCUMENT_VERSION: u32 = 1;

/// What was written.
struct Tokenized {
    texts: usize,
    text_bytes: u64,
    token_type: TokenType,
    vocabulary_size: usize,
    shards: Vec<WrittenShard>,
}

/// Document of `--json`.
#[derive(Serialize)]
struct Document {
    version: u32,
    texts: usize,
    text_bytes: u64,
    tokens: usize,
    bytes_per_token: f64,
    dtype: String,
    vocabulary_size: usize,
    files: Vec<WrittenFile>,
}

#[derive(Serialize)]
struct WrittenFile {
    path: String,
    tokens: usize,
    bytes: u64,
}

/// Parses the command line, writes the shards, and prints what was written.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (args, typed) = parse::<TokenizeArgs>(words)?;
    let tokenizer =
        Tokenizer::open(&args.vocab).map_err(|error| refuse_vocabulary(&typed, &error))?;
    let done = tokenize(&args, &typed, &tokenizer)?;
    let shown = if args.json { document(&done) } else { screen(&done) };
    print(&shown).map_err(CliError::output)?;
    Ok(Status::Success)
}

fn tokenize(
    args: &TokenizeArgs,
    typed: &CommandLine,
    tokenizer: &Tokenizer,
) -> Result<Tokenized, CliError> {
    let separator = separator(args.text_separator.as_deref(), typed, tokenizer)?;
    let vocabulary_size = tokenizer.vocabulary_size();
    let default_type = || TokenType::of_vocabulary(vocabulary_size);
    let token_type = args.dtype.map_or_else(default_type, TokenTypeArg::token_type);
    let options = ShardOptions {
        path: args.output.clone(),
        token_type,
        tokens_max: args.shard_tokens,
        existing: if args.force { ExistingFiles::Replace } else { ExistingFiles::Refuse },
    };
    let shard_error = |error| refuse_shard(typed, &error);
    let mut writer = ShardWriter::create(options).map_err(shard_error)?;
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok());
    let mut encoder = tokenizer.parallel_encoder(threads.unwrap_or(NonZeroUsize::MIN));
    let mut text_bytes = 0;
    for path in &args.texts {
        let text_error = |error: TextFileError| refuse_text(typed, path, &error);
        let file = open_text(path).map_err(text_error)?;
        let text = file.text().map_err(text_error)?;
        writer.write(separator.as_slice()).map_err(shard_error)?;
        encoder.encode(text, |tokens| writer.write(tokens)).map_err(shard_error)?;
        text_bytes += text.len() as u64;
    }
    if writer.is_empty() {
        return Err(refuse_empty(typed));
    }
    let shards = writer.finish().map_err(shard_error)?;
    Ok(Tokenized { texts: args.texts.len(), text_bytes, token_type, vocabulary_size, shards })
}

fn open_text(path: &Path) -> Result<TextFile, TextFileError> {
    if path.as_os_str() == "-" { TextFile::stdin() } else { TextFile::open(path) }
}

/// The token before each text.
fn separator(
    wanted: Option<&str>,
    typed: &CommandLine,
    tokenizer: &Tokenizer,
) -> Result<Option<u32>, CliError> {
    let (name, found) = match wanted {
        Some(NO_SEPARATOR) => return Ok(None),
        Some(name) => (name, tokenizer.special(name)),
        None => ("<|endoftext|>", tokenizer.separator()),
    };
    let known: Vec<&str> = tokenizer.special_names().collect();
    found.map(Some).ok_or_else(|| refuse_separator(typed, name, &known))
}

impl Tokenized {
    fn tokens(&self) -> usize {
        self.shards.iter().map(|shard| shard.tokens).sum()
    }

    fn bytes_per_token(&self) -> f64 {
        self.text_bytes as f64 / self.tokens() as f64
    }
}

fn screen(done: &Tokenized) -> String {
    let (texts, bytes) = (show_count(done.texts, "text"), show_bytes(done.text_bytes as f64));
    let tokens = show_count(done.tokens(), "token");
    let file_bytes: u64 = done.shards.iter().map(|shard| shard.bytes).sum();
    let (token_type, file_bytes) = (done.token_type, show_bytes(file_bytes as f64));
    let ratio = done.bytes_per_token();
    let paths: Vec<String> =
        done.shards.iter().map(|shard| format!("`{}`", shard.path.display())).collect();
    let paths = match &paths[..] {
        [first, .., last] if 2 < paths.len() => format!("{first} to {last}"),
        _ => paths.join(" and "),
    };
    format!(
        "{texts}, {bytes}: {tokens}, {ratio:.2} bytes per token\n{paths}: {token_type}, {file_bytes}\n"
    )
}

fn document(done: &Tokenized) -> String {
    let file = |shard: &WrittenShard| WrittenFile {
        path: shard.path.to_string_lossy().into_owned(),
        tokens: shard.tokens,
        bytes: shard.bytes,
    };
    let document = Document {
        version: DOCUMENT_VERSION,
        texts: done.texts,
        text_bytes: done.text_bytes,
        tokens: done.tokens(),
        bytes_per_token: done.bytes_per_token(),
        dtype: done.token_type.to_string(),
        vocabulary_size: done.vocabulary_size,
        files: done.shards.iter().map(file).collect(),
    };
    serde_json::to_string_pretty(&document).expect("texts and numbers have a JSON form") + "\n"
}

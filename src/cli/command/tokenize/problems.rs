//! Errors of `remuda tokenize`, as screens.

use std::path::Path;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Status};
use crate::cli::command::tokenize::codes::{
    BAD_TEXT, BAD_VOCABULARY, CANNOT_WRITE_SHARD, NO_SEPARATOR, TOKEN_TOO_LARGE,
};
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan, CommandLine};
use crate::train::{ShardError, TextFileError, VocabularyError};

/// Error of the vocabulary.
pub(in crate::cli::command) fn refuse_vocabulary(
    typed: &CommandLine,
    error: &VocabularyError,
) -> CliError {
    let status = match error {
        VocabularyError::Read { .. }
        | VocabularyError::NotFound { .. }
        | VocabularyError::Several { .. } => Status::NoInput,
        VocabularyError::Malformed { .. } | VocabularyError::Unsupported { .. } => Status::BadInput,
    };
    let found = Problem { code: BAD_VOCABULARY, status, message: error.to_string() };
    found.at(typed, typed.value_or_end("vocab"), &error.help())
}

/// Error of a text that was named on the command line.
pub(super) fn refuse_text(typed: &CommandLine, path: &Path, error: &TextFileError) -> CliError {
    let (status, help) = match error {
        TextFileError::Read { .. } => (Status::NoInput, "correct the path; `-` is standard input"),
        TextFileError::NotUtf8 { .. } => {
            (Status::BadInput, "convert it, for example with `iconv -f latin1 -t utf8`")
        }
    };
    let place = typed.path_span(path).unwrap_or_else(|| typed.end_span());
    Problem { code: BAD_TEXT, status, message: error.to_string() }.at(typed, place, help)
}

/// Error of texts without a single token.
pub(super) fn refuse_empty(typed: &CommandLine) -> CliError {
    let message = "the texts are empty".to_owned();
    let found = Problem { code: BAD_TEXT, status: Status::BadInput, message };
    found.at(typed, typed.end_span(), "name texts that are not empty")
}

/// Error of a separator that is not in the vocabulary.
pub(super) fn refuse_separator(typed: &CommandLine, name: &str, known: &[&str]) -> CliError {
    let message = format!("`{}` is not a special token of the vocabulary", name.escape_debug());
    let help = match known {
        [] => "the vocabulary has no special tokens; add `--text_separator none`".to_owned(),
        [one] => format!(
            "the only special token is `{one}`; `--text_separator none` writes no separator"
        ),
        known => format!(
            "the special tokens are `{}`; `--text_separator none` writes no separator",
            known.join("`, `")
        ),
    };
    let found = Problem { code: NO_SEPARATOR, status: Status::Usage, message };
    found.at(typed, typed.value_or_end("text_separator"), &help)
}

/// Error of a shard.
pub(super) fn refuse_shard(typed: &CommandLine, error: &ShardError) -> CliError {
    let message = error.to_string();
    let output = typed.value_or_end("output");
    let unwritten =
        |message| Problem { code: CANNOT_WRITE_SHARD, status: Status::CantCreate, message };
    match error {
        ShardError::TokenTooLarge { .. } => {
            let found = Problem { code: TOKEN_TOO_LARGE, status: Status::BadInput, message };
            found.at(typed, typed.value_or_end("dtype"), "write `--dtype u32`")
        }
        ShardError::IsDirectory { path } => {
            let file = quoted(path.join("train.bin"));
            unwritten(message).at(typed, output, &format!("name a file: `-o {file}`"))
        }
        ShardError::Exists { .. } => {
            unwritten(message).at(typed, output, "`--force` replaces files that exist")
        }
        ShardError::TooManyTokens { .. } => {
            unwritten(message).at(typed, output, "write `--shard_tokens 100000000`")
        }
        ShardError::Write { .. }
        | ShardError::Read { .. }
        | ShardError::Format { .. }
        | ShardError::Length { .. }
        | ShardError::TooFewTokens { .. }
        | ShardError::OutsideVocabulary { .. } => {
            let help = "use a path that you can write, on a disk with free space";
            unwritten(message).at(typed, output, help)
        }
    }
}

/// A problem before its place is known.
struct Problem {
    code: &'static str,
    status: Status,
    message: String,
}

impl Problem {
    fn at(self, typed: &CommandLine, place: ArgvSpan, help: &str) -> CliError {
        let Self { code, status, message } = self;
        let problem = Diagnostic::whole(code, message).help(help);
        CliError::refused(status, typed.refuse_at(place, problem))
    }
}

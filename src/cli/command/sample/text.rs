//! What the tokens of a model stand for.

use std::path::PathBuf;

use crate::base::Status;
use crate::cli::command::sample::args::SampleArgs;
use crate::cli::command::sample::codes::{BAD_PROMPT, OTHER_VOCABULARY};
use crate::cli::command::sample::problems::SampleProblem;
use crate::cli::command::tokenize::refuse_vocabulary;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::train::{Corpus, CorpusError, ModelVocabulary, TOKENS_OF_SHARDS, Tokenizer};

/// Vocabulary of a model.
pub(super) enum ModelText {
    /// Tokens are the bytes that occur in a text.
    Bytes(Box<Corpus>),
    /// Tokens are those of a vocabulary.
    Tokens(Box<Tokenizer>),
}

impl ModelText {
    /// Opens the vocabulary of a model.
    pub(super) fn open(
        args: &SampleArgs,
        typed: &CommandLine,
        model: &ModelVocabulary,
    ) -> Result<Self, CliError> {
        let refuse = |option, message: String, help: &str| {
            let (code, status, help) = (OTHER_VOCABULARY, Status::Config, help.to_owned());
            SampleProblem { code, status, option, message, help }.at(typed)
        };
        let path = args.checkpoint.display();
        match (model.digest == TOKENS_OF_SHARDS, &args.vocab) {
            (true, None) => {
                let message = format!("the model of `{path}` was trained on shards of tokens");
                Err(refuse("vocab", message, "add the vocabulary of the shards: `--vocab PATH`"))
            }
            (true, Some(vocab)) => {
                let found =
                    Tokenizer::open(vocab).map_err(|error| refuse_vocabulary(typed, &error))?;
                if model.tokens < found.vocabulary_size() {
                    let message = format!(
                        "the vocabulary has {} tokens, the model of `{path}` {}",
                        found.vocabulary_size(),
                        model.tokens
                    );
                    let help = "use the vocabulary with which the shards were written";
                    return Err(refuse("vocab", message, help));
                }
                Ok(Self::Tokens(Box::new(found)))
            }
            (false, Some(_)) => {
                let message = format!("the model of `{path}` was trained on the bytes of a text");
                Err(refuse("vocab", message, "leave `--vocab` out; `--data` names the text"))
            }
            (false, None) => {
                let corpus = Corpus::open(&args.data).map_err(|error| unreadable(typed, &error))?;
                if corpus.digest() != model.digest {
                    let message = format!(
                        "{} not the text on which the model of `{path}` was trained",
                        show_data(&args.data)
                    );
                    let help = "name the files of the training: `--data FILE…`";
                    return Err(refuse("data", message, help));
                }
                Ok(Self::Bytes(Box::new(corpus)))
            }
        }
    }

    /// Tokens of the prompt.
    pub(super) fn prompt(
        &self,
        prompt: Option<&str>,
        typed: &CommandLine,
    ) -> Result<Vec<u32>, CliError> {
        let refuse = |message: String, help: &str| {
            let (code, status, help) = (BAD_PROMPT, Status::BadInput, help.to_owned());
            SampleProblem { code, status, option: "prompt", message, help }.at(typed)
        };
        let tokens = match (self, prompt) {
            (Self::Bytes(corpus), prompt) => {
                let text = prompt.unwrap_or("\n");
                let token = |byte: u8| corpus.token(byte).map(u32::from);
                let mut tokens = Vec::new();
                for character in text.chars() {
                    let mut buffer = [0; 4];
                    let bytes = character.encode_utf8(&mut buffer).bytes().map(token);
                    tokens.extend(bytes.collect::<Option<Vec<_>>>().ok_or_else(|| {
                        let shown = character.escape_debug();
                        let message =
                            format!("`{shown}` does not occur in the text of the training");
                        refuse(message, "write another `--prompt`")
                    })?);
                }
                tokens
            }
            (Self::Tokens(tokenizer), Some(text)) => tokenizer.encode(text),
            (Self::Tokens(tokenizer), None) => tokenizer.separator().into_iter().collect(),
        };
        if tokens.is_empty() {
            let message = if prompt.is_some() {
                "the prompt is empty"
            } else {
                "the vocabulary has no token for the start of a text"
            };
            return Err(refuse(message.to_owned(), "write a `--prompt`"));
        }
        Ok(tokens)
    }

    /// Bytes of a token; none for tokens that only fill up the vocabulary.
    pub(super) fn bytes_of(&self, token: u32) -> Vec<u8> {
        match self {
            Self::Bytes(corpus) => vec![corpus.vocabulary()[token as usize]],
            Self::Tokens(tokenizer) => tokenizer.decode(&[token]).unwrap_or_default(),
        }
    }

    /// Whether a token ends the text.
    pub(super) fn is_end(&self, token: u32) -> bool {
        match self {
            Self::Bytes(_) => false,
            Self::Tokens(tokenizer) => tokenizer.separator() == Some(token),
        }
    }
}

/// The files of `--data`, as the subject of a sentence.
fn show_data(files: &[PathBuf]) -> String {
    match files {
        [] => "the built-in text is".to_owned(),
        [file] => format!("`{}` is", file.display()),
        _ => "the text of the `--data` files is".to_owned(),
    }
}

fn unreadable(typed: &CommandLine, error: &CorpusError) -> CliError {
    let help = "name the files of the training: `--data FILE…`".to_owned();
    let message = error.to_string();
    SampleProblem { code: OTHER_VOCABULARY, status: Status::NoInput, option: "data", message, help }
        .at(typed)
}

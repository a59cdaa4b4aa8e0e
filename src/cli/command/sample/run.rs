//! Samples tokens, and prints their text as it grows.

use std::ffi::OsString;
use std::str;

use serde::Serialize;

use crate::base::{Diagnostic, Status};
use crate::cli::command::checkpoint::{place_of_path, refuse_checkpoint};
use crate::cli::command::parse::parse;
use crate::cli::command::sample::args::SampleArgs;
use crate::cli::command::sample::codes::NO_TEXT;
use crate::cli::command::sample::text::ModelText;
use crate::cli::command::train::threads_of_environment;
use crate::cli::error::CliError;
use crate::report::print;
use crate::report::text::escape_control;
use crate::runtime::RandomStream;
use crate::train::{SampleError, SampledToken, Sampler, Threads, TokenChoice, sample_stream};

/// Version of the document of `--json`.
const DOCUMENT_VERSION: u32 = 1;

/// Parses the command line, and prints the prompt and its continuation.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (args, typed) = parse::<SampleArgs>(words)?;
    let threads = Threads::new(args.threads.unwrap_or_else(threads_of_environment));
    let mut sampler = Sampler::open(&args.checkpoint, threads).map_err(|error| match error {
        SampleError::Open(error) => refuse_checkpoint(&typed, &args.checkpoint, None, &error),
        SampleError::NoText { .. } => {
            let place = place_of_path(&typed, &args.checkpoint);
            let refused = typed.refuse(&[place], |spans| {
                Diagnostic::error(NO_TEXT, spans[0], error.to_string())
                    .help("use a checkpoint of a GPT")
            });
            CliError::refused(Status::BadInput, refused)
        }
    })?;
    let text = ModelText::open(&args, &typed, sampler.vocabulary())?;
    let prompt = text.prompt(args.prompt.as_deref(), &typed)?;
    if args.json {
        let sampled = Samples::new(&args, &mut sampler, &text, &prompt).collect();
        print(&document(&text, &prompt, sampled)).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    let mut screen = TextScreen::default();
    if let Some(prompt) = &args.prompt {
        screen.show(prompt.as_bytes())?;
    }
    for sampled in Samples::new(&args, &mut sampler, &text, &prompt) {
        screen.show(&text.bytes_of(sampled.token))?;
    }
    screen.finish()?;
    Ok(Status::Success)
}

/// The tokens that a line asks for, one by one.
struct Samples<'a> {
    sampler: &'a mut Sampler,
    text: &'a ModelText,
    choice: TokenChoice,
    stream: RandomStream,
    tokens: Vec<u32>,
    /// Number of tokens that are still to be drawn.
    rest: usize,
}

impl<'a> Samples<'a> {
    fn new(
        args: &SampleArgs,
        sampler: &'a mut Sampler,
        text: &'a ModelText,
        prompt: &[u32],
    ) -> Self {
        Self {
            sampler,
            text,
            choice: TokenChoice { temperature: args.temperature, top_k: args.top_k },
            stream: sample_stream(args.seed),
            tokens: prompt.to_vec(),
            rest: args.tokens.get(),
        }
    }
}

impl Iterator for Samples<'_> {
    type Item = SampledToken;

    fn next(&mut self) -> Option<SampledToken> {
        self.rest = self.rest.checked_sub(1)?;
        let drawn = self.sampler.next_token(&self.tokens, self.choice, &mut self.stream);
        if self.text.is_end(drawn.token) {
            self.rest = 0;
            return None;
        }
        self.tokens.push(drawn.token);
        Some(drawn)
    }
}

/// Document of `--json`.
#[derive(Serialize)]
struct Document {
    version: u32,
    prompt: Vec<u32>,
    tokens: Vec<DocumentToken>,
}

#[derive(Serialize)]
struct DocumentToken {
    token: u32,
    text: String,
    log_probability: f64,
}

fn document(text: &ModelText, prompt: &[u32], sampled: Vec<SampledToken>) -> String {
    let token = |sampled: SampledToken| DocumentToken {
        token: sampled.token,
        text: String::from_utf8_lossy(&text.bytes_of(sampled.token)).into_owned(),
        log_probability: sampled.log_probability,
    };
    let tokens = sampled.into_iter().map(token).collect();
    let document = Document { version: DOCUMENT_VERSION, prompt: prompt.to_vec(), tokens };
    serde_json::to_string_pretty(&document).expect("texts and numbers have a JSON form") + "\n"
}

/// Text on standard output, whose last character may be incomplete.
#[derive(Default)]
struct TextScreen {
    incomplete: Vec<u8>,
}

impl TextScreen {
    /// Prints all complete characters; control characters are escaped.
    fn show(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.incomplete.extend(bytes);
        let complete = match str::from_utf8(&self.incomplete) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.incomplete.len(),
        };
        let bytes: Vec<u8> = self.incomplete.drain(..complete).collect();
        print_lines(&String::from_utf8_lossy(&bytes))
    }

    fn finish(self) -> Result<(), CliError> {
        print_lines(&String::from_utf8_lossy(&self.incomplete))?;
        print_lines("\n")
    }
}

fn print_lines(text: &str) -> Result<(), CliError> {
    let lines: Vec<String> = text.split('\n').map(escape_control).collect();
    print(&lines.join("\n")).map_err(CliError::output)
}

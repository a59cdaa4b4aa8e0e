//! Samples tokens, and prints their text as it grows.

use std::ffi::OsString;
use std::str;

use crate::base::Status;
use crate::cli::command::checkpoint::refuse_checkpoint;
use crate::cli::command::parse::parse;
use crate::cli::command::sample::args::SampleArgs;
use crate::cli::command::sample::codes::NO_TEXT;
use crate::cli::command::sample::problems::Problem;
use crate::cli::command::sample::text::ModelText;
use crate::cli::command::train::threads_of_environment;
use crate::cli::error::CliError;
use crate::report::print;
use crate::report::text::escape_control;
use crate::train::{ModelId, SampleError, Sampler, Threads, TokenChoice, sample_stream};

/// Parses the command line, and prints the prompt and its continuation.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (args, typed) = parse::<SampleArgs>(words)?;
    let threads = Threads::new(args.threads.unwrap_or_else(threads_of_environment));
    let mut sampler = Sampler::open(&args.checkpoint, threads).map_err(|error| match error {
        SampleError::Open(error) => refuse_checkpoint(&typed, &args.checkpoint, None, &error),
        SampleError::NoText(_) => {
            let (message, help) = (error.to_string(), "use a checkpoint of a GPT".to_owned());
            let (code, status) = (NO_TEXT, Status::BadInput);
            Problem { code, status, option: "checkpoint", message, help }.at(&typed)
        }
    })?;
    let ModelId::Gpt { vocabulary, bytes, .. } = sampler.saved().model.clone() else {
        unreachable!("the sampler has a GPT")
    };
    let text = ModelText::open(&args, &typed, (vocabulary, &bytes))?;
    let mut tokens = text.prompt(args.prompt.as_deref(), &typed)?;
    let mut screen = TextScreen::default();
    if let Some(prompt) = &args.prompt {
        screen.show(prompt.as_bytes())?;
    }
    let choice = TokenChoice { temperature: args.temperature, top_k: args.top_k };
    let mut stream = sample_stream(args.seed);
    for _ in 0..args.tokens.get() {
        let token = sampler.next_token(&tokens, choice, &mut stream);
        if text.is_end(token) {
            break;
        }
        tokens.push(token);
        screen.show(&text.bytes_of(token))?;
    }
    screen.finish()?;
    Ok(Status::Success)
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

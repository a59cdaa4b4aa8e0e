//! `remuda accelerate`: command lines of Hugging Face's launcher.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::base::{Diagnostic, Status, env_vars};
use crate::cli::command::parse::{bare, into_args, parse_with_definition, refuse_bare};
use crate::cli::error::CliError;
use crate::cli::face::accelerate::args::{
    AccelerateArgs, AccelerateCli, LAUNCH, launch_definition,
};
use crate::cli::face::accelerate::job;
use crate::cli::line::{self, CommandLine, OriginalLauncher, Parsed, RefusedLine, codes};
use crate::cli::resolve;
use crate::os::process::replace::{find_other_program, replace_process};
use crate::report::text::show_io_error;

/// The program of Hugging Face.
const ACCELERATE: &str = "accelerate";
/// Its subcommands that start no job.
const OWN_COMMANDS: [&str; 7] =
    ["config", "env", "test", "estimate-memory", "merge-weights", "tpu-config", "to-fsdp2"];

/// Parses the arguments of `program`, which is `accelerate launch`. Nothing outside the line is read.
fn parse(program: &str, words: Vec<OsString>) -> Result<Parsed<AccelerateArgs>, RefusedLine> {
    let typed = CommandLine::new(program, words);
    line::parse_line_of(OriginalLauncher::Accelerate, launch_definition(program), typed)
}

pub(in crate::cli) use crate::cli::face::accelerate::args::definition;

/// Parses the command line of `program`, which begins with a subcommand, and runs the job.
pub(in crate::cli) fn main(program: &str, words: Vec<OsString>) -> Result<Status, CliError> {
    let first = words.first().and_then(|word| word.to_str());
    match first {
        Some(LAUNCH) => launch(&format!("{program} launch"), words[1..].to_vec()),
        Some("-h" | "--help" | "-V" | "--version" | "help") => {
            // It prints the text, and returns the status as an error.
            let command = definition().name(program.to_owned()).bin_name(program);
            let _ = parse_with_definition::<AccelerateCli>(command, words)?;
            Ok(Status::Success)
        }
        Some(name) if OWN_COMMANDS.contains(&name) => Err(hand_over(program, words)),
        None if words.is_empty() => Err(no_subcommand(program)),
        _ => Err(not_launch(program, words)),
    }
}

/// Parses the arguments of `accelerate launch`, and runs the job.
pub(in crate::cli) fn launch(program: &str, words: Vec<OsString>) -> Result<Status, CliError> {
    refuse_bare(&words, || launch_definition(program))?;
    let (args, typed) = into_args(parse(program, words)?)?;
    job::start(&args, &typed)
}

/// Replaces this process by accelerate itself, which has the other subcommands.
fn hand_over(program: &str, words: Vec<OsString>) -> CliError {
    let path = env_vars::get(env_vars::PATH).unwrap_or_default();
    let found = find_other_program(ACCELERATE, &path).or_else(beside_python);
    let failed = found.map(|file| {
        let error = replace_process(&file, &words);
        format!("cannot execute `{}`: {}", file.display(), show_io_error(&error))
    });
    let typed = CommandLine::new(program, words);
    let refused = typed.refuse(&[typed.word_span(0)], |spans| {
        let name = typed.words[0].to_string_lossy();
        let message = failed.unwrap_or_else(|| {
            format!(
                "`{name}` is a command of accelerate itself, which is neither in PATH nor beside the Python of \
                 the workers"
            )
        });
        Diagnostic::error(codes::UNKNOWN_COMMAND, spans[0], message)
            .label("handed to accelerate")
            .help("type `pip install accelerate`; remuda itself reads `accelerate launch`")
    });
    refused.into()
}

/// Returns the accelerate that is installed beside the Python of the workers: PYTHON_EXEC may name an
/// environment that is not active.
fn beside_python() -> Option<PathBuf> {
    let python = resolve::interpreter(None, None).ok()?;
    find_other_program(ACCELERATE, Path::new(&python).parent()?.as_os_str())
}

/// A line with nothing after the name of accelerate, which exits with 1 itself.
fn no_subcommand(program: &str) -> CliError {
    let more = format!("; {} are handed to accelerate itself", OWN_COMMANDS.join(", "));
    let problem = (codes::NEEDS_OTHER, "a command is missing");
    bare(Status::Findings, problem, launch_definition(&format!("{program} {LAUNCH}")), &more)
}

/// Neither `launch` nor a subcommand of accelerate.
fn not_launch(program: &str, words: Vec<OsString>) -> CliError {
    let typed = CommandLine::new(program, words);
    let refused = typed.refuse(&[typed.word_span(0)], |spans| {
        Diagnostic::error(codes::UNKNOWN_COMMAND, spans[0], "expected `launch`")
            .label("not a subcommand of remuda")
            .help(format!(
                "type `{program} launch SCRIPT`; {} are handed to accelerate itself",
                OWN_COMMANDS.join(", ")
            ))
    });
    refused.into()
}

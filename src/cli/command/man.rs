//! `remuda man`: manual pages, from the definition of the command line.

use std::ffi::OsString;

use clap::{Command, CommandFactory, Parser};

use crate::base::{Diagnostic, Status, show_typed};
use crate::cli::command::entry::{CommandEntry, full_definition};
use crate::cli::command::parse::parse;
use crate::cli::error::CliError;
use crate::cli::executable::{is_elf, search_path};
use crate::cli::help;
use crate::cli::line::{CommandLine, codes};
use crate::os::process::replace::replace_process_with_input;
use crate::pool::nearest;
use crate::report::{Terminal, print, print_screen};

/// Show the manual page of remuda or of a command; in a pipe or a file, print it as roff.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda man", bin_name = "remuda man", version)]
struct ManCli {
    /// Command, such as `run` or `hostfile check` [default: the first page]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(in crate::cli) fn definition() -> Command {
    ManCli::command()
}

/// Parses the command line, and prints the page.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    commands: &[CommandEntry],
) -> Result<Status, CliError> {
    let (cli, typed) = parse::<ManCli>(words)?;
    let mut page = full_definition(commands);
    page.build();
    let mut name = "remuda".to_owned();
    for (number, word) in cli.command.iter().enumerate() {
        let Some(found) = page.find_subcommand(word) else {
            return Err(unknown_command(&typed, number, word, &page));
        };
        page = found.clone();
        name = format!("{name}-{word}");
    }
    let mut page = page.bin_name(name.replace('-', " ")).display_name(name);
    // A synopsis with sixty options would not be readable.
    let usage = page.render_usage().to_string();
    let page = page.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let roff = help::manual_page(&page).map_err(CliError::output)?;
    if !Terminal::detect().stdout {
        print(&roff).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    show(&roff);
    // No reader of manual pages could be started.
    print_screen(&page.clone().render_long_help().to_string()).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Replaces this process by `man`, which shows the page; returns if that is not possible.
fn show(roff: &str) {
    let Some(man) = search_path("man").and_then(|man| std::fs::canonicalize(man).ok()) else {
        return;
    };
    // In minimal images `man` is a script that prints a message, and that of busybox has no `-l`.
    let reads_input = is_elf(&man) && man.file_name().is_some_and(|name| name != "busybox");
    if reads_input {
        let error = replace_process_with_input(&man, &["-l", "-"], roff.as_bytes());
        tracing::debug!(%error, "cannot start man");
    }
}

fn unknown_command(typed: &CommandLine, number: usize, word: &str, within: &Command) -> CliError {
    let near = nearest(word, within.get_subcommands().map(Command::get_name));
    let refused = typed.refuse(&[typed.word_span(number)], |spans| {
        let message = format!("there is no command `{}`", show_typed(word));
        let problem = Diagnostic::error(codes::UNKNOWN_COMMAND, spans[0], message).label("unknown");
        match near {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help("`remuda --help` lists the commands"),
        }
    });
    refused.into()
}

//! `remuda man`: manual pages, from the definition of the command line.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Command, CommandFactory, Parser};

use super::error::CliError;
use super::line::{CommandLine, codes};
use super::{definitions, help, parse};
use crate::base::{Diagnostic, Status, show_typed};
use crate::pool::nearest;
use crate::report::print;

/// Text at the foot of every page.
const PAGE_FOOTER: &str = concat!("remuda ", env!("CARGO_PKG_VERSION"));

/// Print a page of the manual in roff: of the program, or of a command.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda man", bin_name = "remuda man", version)]
struct ManCli {
    /// Command, such as `run` or `hostfile check` [default: the first page]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn definition() -> Command {
    ManCli::command()
}

/// Parses the command line, and prints the page.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, typed) = parse::<ManCli>(words)?;
    let mut page = definitions::full_definition();
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
    let examples = help::examples_of(&page).map_or_else(String::new, |text| example_section(&text));
    let page = clap_mangen::Man::new(page).source(PAGE_FOOTER).manual("Manual of remuda");
    let mut roff = Vec::new();
    page.render(&mut roff).map_err(CliError::output)?;
    let roff = String::from_utf8_lossy(&roff) + &*examples;
    print(&escape_non_ascii(&roff)).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Formats lines that are shown unchanged.
fn example_section(text: &str) -> String {
    let lines = text.lines().skip(1).map(|line| line.replace('\\', "\\e").replace('-', "\\-"));
    let lines: Vec<String> = lines.collect();
    format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n"))
}

/// Replaces other characters by escapes, `…` → `\[u2026]`: not every reader of manual pages
/// supports UTF-8.
fn escape_non_ascii(roff: &str) -> String {
    let mut out = String::with_capacity(roff.len());
    for c in roff.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            write!(out, "\\[u{:04X}]", u32::from(c)).expect("writing to a String cannot fail");
        }
    }
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_ascii() {
        assert_eq!(escape_non_ascii("a\\-b … ×\n"), "a\\-b \\[u2026] \\[u00D7]\n");
    }
}

//! `remuda explain CODE`: the explanation of an error code.

use std::fmt::Write as _;

use clap::{CommandFactory, Parser};

use crate::base::order;
use crate::base::{Diagnostic, Explanation, Status, show_typed};
use crate::cli::command::parse::parse;
use crate::cli::error::CliError;
use crate::cli::line::{self, CommandLine, codes};
use crate::report::print_screen;
use crate::{config, doctor, launch, pool};

/// Explain a code such as `H003`: what is wrong, why it matters, what to type.
///
/// Without a code: list all codes.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda explain", bin_name = "remuda explain", version)]
struct ExplainCli {
    /// Code in brackets after `error`, in upper or lower case
    #[arg(value_name = "CODE")]
    codes: Vec<String>,
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    ExplainCli::command()
}

/// Returns every code of remuda with its explanation, in alphabetical order.
pub fn explanations() -> Vec<&'static Explanation> {
    let mut all: Vec<&Explanation> = Vec::new();
    all.extend(line::codes::EXPLANATIONS);
    all.extend(pool::codes::EXPLANATIONS.into_iter().flatten());
    all.extend(launch::codes::EXPLANATIONS);
    all.extend(doctor::codes::EXPLANATIONS);
    all.extend(crate::cli::codes::machine::EXPLANATIONS);
    all.extend(crate::cli::codes::pod::EXPLANATIONS);
    all.extend(config::codes::EXPLANATIONS.into_iter().flatten());
    all.extend(crate::cli::command::bench::EXPLANATIONS);
    #[cfg(feature = "train")]
    all.extend(crate::cli::command::checkpoint::EXPLANATIONS);
    #[cfg(feature = "train")]
    all.extend(crate::cli::command::sample::EXPLANATIONS);
    #[cfg(feature = "train")]
    all.extend(crate::cli::command::tokenize::EXPLANATIONS);
    #[cfg(feature = "train")]
    all.extend(crate::cli::command::train::EXPLANATIONS);
    order::sort_by_key(&mut all, |explanation| explanation.code);
    all
}

/// Parses the command line, and prints the explanations.
pub(in crate::cli) fn main(words: Vec<std::ffi::OsString>) -> Result<Status, CliError> {
    let (cli, typed) = parse::<ExplainCli>(words)?;
    let show = |code: &String| {
        find_code(code).map(show_explanation).ok_or_else(|| unknown_code(&typed, code))
    };
    let pages: Vec<String> = cli.codes.iter().map(show).collect::<Result<_, _>>()?;
    let text = if pages.is_empty() { list_codes() } else { pages.join("\n") };
    print_screen(&text).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Returns the explanation of a code as it is printed or typed: `h003`, `[H003]` and `error[H003]:` are the
/// same code.
fn find_code(code: &str) -> Option<&'static Explanation> {
    let code = code.trim().trim_end_matches(':').trim_end_matches(']');
    let code = code.rsplit('[').next().unwrap_or(code);
    explanations().into_iter().find(|found| found.code.eq_ignore_ascii_case(code))
}

fn show_explanation(found: &Explanation) -> String {
    format!("{}: {}\n\n{}\n", found.code, found.title, wrap_paragraphs(found.text))
}

fn list_codes() -> String {
    explanations().into_iter().fold(String::new(), |mut text, found| {
        let _ = writeln!(text, "{}  {}", found.code, found.title);
        text
    })
}

/// Wraps paragraphs at a readable width; lines that begin with blanks are examples and are not
/// changed.
fn wrap_paragraphs(text: &str) -> String {
    const WIDTH: usize = 80;
    let mut out = String::new();
    for line in text.split('\n') {
        if line.starts_with(' ') {
            out += line;
            out.push('\n');
            continue;
        }
        let mut column = 0;
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            let width = word.chars().count();
            if 0 < column && WIDTH < column + 1 + width {
                out.push('\n');
                column = 0;
            }
            if 0 < column {
                out.push(' ');
                column += 1;
            }
            out += word;
            column += width;
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

fn unknown_code(typed: &CommandLine, code: &str) -> CliError {
    let all = explanations();
    let near = pool::nearest(&code.to_uppercase(), all.iter().map(|found| found.code));
    let at = typed.words.iter().position(|word| word == code).unwrap_or_default();
    let refused = typed.refuse(&[typed.word_span(at)], |spans| {
        let message = format!("there is no code `{}`", show_typed(code));
        let problem = Diagnostic::error(codes::BAD_VALUE, spans[0], message).label("unknown");
        match near {
            _ if code.parse::<u8>().is_ok() => problem.help(
                "a code has a letter, `R101`; `remuda run --help` lists the exit statuses; 128 + N is the status of a \
                 worker that signal N ended",
            ),
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help("`remuda explain` lists all codes"),
        }
    });
    refused.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_pages_end_properly() {
        let all = explanations();
        let codes: Vec<_> = all.iter().map(|found| found.code).collect();
        assert!(codes.is_sorted_by(|left, right| left < right), "{codes:?}");
        for found in all {
            let is_one_line = !found.title.is_empty() && !found.title.contains('\n');
            assert!(is_one_line && (found.text.ends_with('.') || found.text.contains("\n    ")));
        }
    }

    #[test]
    fn code_is_found_in_any_case_and_in_brackets() {
        for code in ["H003", "h003", "[H003]", "error[H003]", "error[h003]:", "H003:"] {
            assert_eq!(find_code(code).map(|found| found.title), Some("host is listed twice"));
        }
        assert_eq!(find_code("H999"), None);
    }

    #[test]
    fn paragraphs_are_wrapped_but_examples_are_not() {
        let word = "word ".repeat(20);
        let example = format!("    {}", "x".repeat(100));
        let shown = wrap_paragraphs(&format!("{word}\n\n{example}\n\nend"));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0].len(), 79);
        assert_eq!(lines[1..], ["word word word word", "", &example, "", "end"]);
    }
}

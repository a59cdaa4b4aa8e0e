//! Parses a line of options, a script and the arguments of the script into structs of clap.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::{Command, FromArgMatches};

use super::clap_error::{NotParsed, explain};
use super::flags::{Flags, OriginalLauncher};
use super::lex::{Lexed, lex};
use super::typed::{CommandLine, RefusedLine};
use super::version::version_line;
use crate::cli::args::color;
use crate::cli::help;

/// Result of parsing a command line.
#[derive(Clone, Debug)]
pub enum Parsed<A> {
    /// A job.
    Run(Box<A>, CommandLine),
    /// A text that the line requests, such as help.
    Text(StyledStr),
}

/// Parses the words of `typed` with the rules of Python's argparse and the options of `command`.
/// Nothing outside the line is read but the width of a help page.
pub(in crate::cli) fn parse<A: FromArgMatches>(
    command: Command,
    typed: CommandLine,
) -> Result<Parsed<A>, RefusedLine> {
    parse_line_of(OriginalLauncher::DeepSpeed, command, typed)
}

/// Does the same for a command with the options of another launcher.
pub(in crate::cli) fn parse_line_of<A: FromArgMatches>(
    original: OriginalLauncher,
    mut command: Command,
    mut typed: CommandLine,
) -> Result<Parsed<A>, RefusedLine> {
    command = color::with_option(command);
    let flags = Flags::of(&mut command).of_launcher(original);
    let lexed = lex(&flags, &mut typed);
    color::choose_typed(&typed);
    let script = match lexed? {
        Lexed::Script(script) => script,
        Lexed::Help(length) => {
            return Ok(Parsed::Text(help::page(&command, length, help::width())));
        }
        Lexed::Version => return Ok(Parsed::Text(version_line().into())),
    };
    typed.find_replaced(&flags);
    let found = command.try_get_matches_from(canonical(&typed, script));
    match found.and_then(|found| A::from_arg_matches(&found)) {
        Ok(args) => Ok(Parsed::Run(Box::new(args), typed)),
        Err(error) => match explain(&error, &flags, &typed) {
            NotParsed::Text(text) => Ok(Parsed::Text(text)),
            NotParsed::Refused(refused) => Err(refused),
        },
    }
}

/// Finds the options of a line; `None` if it has no script, or an error that [`parse`] reports.
pub(in crate::cli) fn scan(mut command: Command, mut typed: CommandLine) -> Option<CommandLine> {
    command = color::with_option(command);
    let flags = Flags::of(&mut command);
    let lexed = lex(&flags, &mut typed);
    matches!(lexed, Ok(Lexed::Script(_))).then_some(typed)
}

/// Returns the line without abbreviations, from which clap fills its structs.
fn canonical(typed: &CommandLine, script: usize) -> Vec<OsString> {
    let mut words = vec![OsString::from(&typed.program)];
    for given in &typed.options {
        let mut word = OsString::from(format!("--{}", given.flag));
        if let Some((value, _)) = &given.value {
            word.push("=");
            word.push(value);
        }
        words.push(word);
    }
    words.push("--".into());
    words.extend_from_slice(&typed.words[script..]);
    words
}

//! A line of options, a script and the script's own words → clap's structs.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::{Command, FromArgMatches};

use super::clap_error::{NotParsed, explain};
use super::flags::Flags;
use super::lex::{Lexed, lex};
use super::typed::{RefusedLine, Typed};
use crate::cli::{color, help};

const VERSION: &str = concat!("remuda ", env!("CARGO_PKG_VERSION"), "\n");

/// What a command line turned out to be.
#[derive(Clone, Debug)]
pub enum Parsed<A> {
    /// A job.
    Run(Box<A>, Typed),
    /// A text, because the line asks for it.
    Asked(StyledStr),
}

/// Reads the words of `typed` as Python's argparse would, with the options of `command`. Of the world
/// only the width of a help page is asked.
pub(in crate::cli) fn parse<A: FromArgMatches>(
    mut command: Command,
    mut typed: Typed,
) -> Result<Parsed<A>, RefusedLine> {
    command = color::with_option(command);
    let flags = Flags::of(&mut command);
    let lexed = lex(&flags, &mut typed);
    color::choose_typed(&typed);
    let script = match lexed? {
        Lexed::Script(script) => script,
        Lexed::Help(length) => {
            return Ok(Parsed::Asked(help::page(&command, length, help::width())));
        }
        Lexed::Version => return Ok(Parsed::Asked(VERSION.into())),
    };
    typed.find_replaced(&flags);
    let found = command.try_get_matches_from(canonical(&typed, script));
    match found.and_then(|found| A::from_arg_matches(&found)) {
        Ok(args) => Ok(Parsed::Run(Box::new(args), typed)),
        Err(error) => match explain(&error, &flags, &typed) {
            NotParsed::Asked(text) => Ok(Parsed::Asked(text)),
            NotParsed::Refused(refused) => Err(refused),
        },
    }
}

/// The line without abbreviations: what clap is given to fill its structs.
fn canonical(typed: &Typed, script: usize) -> Vec<OsString> {
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

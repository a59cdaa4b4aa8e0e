//! `remuda links`: links to remuda under the names of the launchers whose lines it reads.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Command, CommandFactory, Parser};

use crate::base::shell::quoted;
use crate::base::{Status, env_vars, show_create_dir_error};
use crate::cli::codes::machine::{CANNOT_CREATE, CANNOT_READ};
use crate::cli::command::parse::parse;
use crate::cli::error::CliError;
use crate::cli::executable::search_path;
use crate::report::print;
use crate::report::text::show_io_error;

/// Names under which remuda reads the lines of another launcher.
const NAMES: [&str; 5] = ["deepspeed", "ds", "torchrun", "accelerate", "accelerate-launch"];

/// Make links, so that `deepspeed`, `torchrun` and `accelerate` start remuda.
///
/// Nothing else makes such links: without them the real launchers keep their names. An entry of the directory
/// that is not a link to remuda is never replaced.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda links", bin_name = "remuda links", version)]
struct LinksCli {
    /// Directory for the links; made if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Launchers [default: all of them]
    #[arg(value_name = "NAME", value_parser = NAMES)]
    names: Vec<String>,
}

pub(in crate::cli) fn definition() -> Command {
    LinksCli::command()
}

/// Parses the command line, and makes the links.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, _) = parse::<LinksCli>(words)?;
    let own = std::env::current_exe().map_err(|error| {
        let message = format!("the executable of remuda cannot be found: {error}");
        CliError::new(Status::OsLimit, CANNOT_READ, message)
    })?;
    let names: Vec<&str> = match cli.names.as_slice() {
        [] => NAMES.to_vec(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    let missing = find_missing(&cli.directory, &names, &own)?;
    make(&cli.directory, &missing, &own)?;
    print(&screen(&cli.directory, &names, &own)).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Returns the names that have no link yet; an error if one of them is something else, before anything is made.
fn find_missing<'a>(
    directory: &Path,
    names: &[&'a str],
    own: &Path,
) -> Result<Vec<&'a str>, CliError> {
    let mut missing = Vec::new();
    for name in names {
        let link = directory.join(name);
        match fs::symlink_metadata(&link) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(*name),
            Ok(_) if leads_to(&link, own) => {}
            Ok(_) => {
                let message = format!("{} exists and is not a link to remuda", quoted(&link));
                return Err(CliError::new(Status::CantCreate, CANNOT_CREATE, message)
                    .help("name another directory, or remove the file; nothing was changed"));
            }
            Err(error) => return Err(cannot_create(&link, &error)),
        }
    }
    Ok(missing)
}

fn leads_to(link: &Path, own: &Path) -> bool {
    let resolved = |path: &Path| fs::canonicalize(path).ok();
    resolved(link).is_some_and(|file| Some(file) == resolved(own))
}

fn make(directory: &Path, names: &[&str], own: &Path) -> Result<(), CliError> {
    fs::create_dir_all(directory).map_err(|error| {
        let why = show_create_dir_error(&error);
        let message = format!("{} cannot be created: {why}", quoted(directory));
        CliError::new(Status::CantCreate, CANNOT_CREATE, message)
    })?;
    for name in names {
        let link = directory.join(name);
        symlink(own, &link).map_err(|error| cannot_create(&link, &error))?;
    }
    Ok(())
}

fn cannot_create(link: &Path, error: &io::Error) -> CliError {
    let message = format!("{} cannot be created: {}", quoted(link), show_io_error(error));
    CliError::new(Status::CantCreate, CANNOT_CREATE, message)
}

/// Says what the links lead to, and which of them a shell does not find.
fn screen(directory: &Path, names: &[&str], own: &Path) -> String {
    let mut text = String::new();
    for name in names {
        let _ = writeln!(text, "{} -> {}", quoted(directory.join(name)), own.display());
    }
    let path = env_vars::get(env_vars::PATH).unwrap_or_default();
    if !std::env::split_paths(&path).any(|entry| entry == directory) {
        let shown = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let _ =
            writeln!(text, "help: put the directory first: export PATH={}:$PATH", quoted(shown));
        return text;
    }
    for name in names {
        let found = search_path(name).map(PathBuf::from);
        if let Some(other) = found.filter(|file| !leads_to(file, own)) {
            let _ = writeln!(text, "note: in PATH, {} comes first", quoted(other));
        }
    }
    text
}

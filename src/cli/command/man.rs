//! `remuda man`: manual pages, from the definition of the command line.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory, Parser};

use crate::base::{Diagnostic, Status, env_vars, show_typed};
use crate::cli::command::entry::{CommandEntry, full_definition};
use crate::cli::command::parse::parse;
use crate::cli::error::CliError;
use crate::cli::executable::{is_elf, search_path};
use crate::cli::help;
use crate::cli::line::{CommandLine, codes};
use crate::os::process::replace::replace_process_with_input;
use crate::pool::nearest;
use crate::report::{Terminal, print, print_screen};

/// Text at the foot of every page.
const PAGE_FOOTER: &str = concat!("remuda ", env!("CARGO_PKG_VERSION"));

/// Commands whose pages have a section about environment variables.
const ENVIRONMENT_PAGES: [&str; 2] = ["remuda-run", "remuda-pod"];

/// Environment variables that a user can set, and their effects.
const ENVIRONMENT: [(&str, &str); 14] = [
    (
        env_vars::REMUDA_LOG,
        "Filter of the log of remuda itself, which is written to standard error, such as debug or \
         remuda::job=trace,info. Add the log at debug to a bug report. Default: no log.",
    ),
    (
        env_vars::REMUDA_RUN_DIR,
        "Directory in which run directories are created. Default: remuda/runs in XDG_STATE_HOME, \
         which is ~/.local/state if it is not set.",
    ),
    (
        env_vars::DS_ENV_FILE,
        "Name or path of the environment files that are read for the workers. Default: .deepspeed_env.",
    ),
    (
        "REMUDA_PROFILE, REMUDA_TIMEOUT, ...",
        "Values of options that are not on the command line: REMUDA_ and the name of the option in capitals; 1 \
         or 0 for an option without a value. They precede remuda.toml.",
    ),
    (env_vars::DS_ACCELERATOR, "Kind of device of a slot: the values of --accelerator."),
    (env_vars::PYTHON_EXEC, "Python that runs the script when --python is not given."),
    (
        env_vars::REMUDA_STREAMS,
        "For workers: number of TCP streams between two ranks of different nodes.",
    ),
    (
        env_vars::REMUDA_LOCAL_ADDR,
        "For workers: address at which other ranks connect to this rank.",
    ),
    (env_vars::REMUDA_NCCL_LIBRARY, "For workers: path of the NCCL library to load."),
    (env_vars::REMUDA_NVRTC_LIBRARY, "For workers: path of the NVRTC library to load."),
    (env_vars::REMUDA_CUBLASLT_LIBRARY, "For workers: path of the cuBLASLt library to load."),
    (
        "REMUDA_NODES, REMUDA_KEY_FILE, ...",
        "For remuda pod: values of the options under Nodes and Hosts, as described in remuda pod --help.",
    ),
    (env_vars::NO_COLOR, "If it is set, output has no colours."),
    (
        env_vars::FORCE_COLOR,
        "If it is set and not 0, output has colours even if it is not a terminal; CLICOLOR_FORCE has \
         the same effect.",
    ),
];

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
    let environment = if ENVIRONMENT_PAGES.contains(&name.as_str()) {
        environment_section()
    } else {
        String::new()
    };
    let mut page = page.bin_name(name.replace('-', " ")).display_name(name);
    // A synopsis with sixty options would not be readable.
    let usage = page.render_usage().to_string();
    let page = page.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let mut plain = page.clone();
    let examples = help::examples_of(&page).map_or_else(String::new, |text| example_section(&text));
    let page = page.mut_args(with_aliases);
    let page = clap_mangen::Man::new(page).source(PAGE_FOOTER).manual("Manual of remuda");
    let mut roff = Vec::new();
    page.render(&mut roff).map_err(CliError::output)?;
    let roff = String::from_utf8_lossy(&roff) + &*environment + &*examples;
    let roff = escape_non_ascii(&roff);
    if !Terminal::detect().stdout {
        print(&roff).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    show(&roff);
    // No reader of manual pages could be started.
    print_screen(&plain.render_long_help().to_string()).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Adds the other names of an option to its help, as clap does on the screen; `clap_mangen` leaves them out.
fn with_aliases(option: Arg) -> Arg {
    let aliases = option.get_visible_aliases().filter(|aliases| !aliases.is_empty());
    let Some(aliases) = aliases else { return option };
    let noun = if aliases.len() == 1 { "alias" } else { "aliases" };
    let names: Vec<String> = aliases.iter().map(|alias| format!("--{alias}")).collect();
    let help = option.get_long_help().or(option.get_help()).cloned().unwrap_or_default();
    let help = format!("{help} [{noun}: {}]", names.join(", "));
    option.help(help.clone()).long_help(help)
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

/// Formats [`ENVIRONMENT`] as a list of tagged paragraphs.
fn environment_section() -> String {
    let mut section = ".SH ENVIRONMENT\n".to_owned();
    for (name, text) in ENVIRONMENT {
        let text = text.replace('-', "\\-");
        writeln!(section, ".TP\n\\fB{name}\\fR\n{text}").expect("writing to a String cannot fail");
    }
    section
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

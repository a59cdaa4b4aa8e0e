//! `remuda completion`: what a shell needs to complete our lines.

use std::ffi::OsString;

use clap::{Command, CommandFactory, Parser};
use clap_complete::{Shell, generate};

use super::definitions;
use super::error::CliError;
use crate::base::Status;
use crate::report::print;

/// Behind the list of options.
const HELP_END: &str = "\
bash:  remuda completion bash > ~/.local/share/bash-completion/completions/remuda
zsh:   remuda completion zsh > \"${fpath[1]}/_remuda\"
fish:  remuda completion fish > ~/.config/fish/completions/remuda.fish";

/// Print a script that makes a shell complete commands, options and their values.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda completion",
    bin_name = "remuda completion",
    version,
    after_help = HELP_END
)]
struct CompletionFace {
    /// Which shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

pub(super) fn definition() -> Command {
    CompletionFace::command()
}

/// Parses and prints.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (face, _) = super::parse::<CompletionFace>(words)?;
    let shell = match face.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    generate(shell, &mut definitions::whole(), "remuda", &mut script);
    print(&String::from_utf8_lossy(&script)).map_err(CliError::output)?;
    Ok(Status::Success)
}

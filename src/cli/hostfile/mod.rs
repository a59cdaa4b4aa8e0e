//! `remuda hostfile …`, and the loader of `remuda run -H`. Each command has one file.

mod check;
mod convert;
mod diff;
mod fmt;
mod load;
mod show;
mod values;
mod write;

use crate::base::Status;
use crate::report::diagnostic::Paint;

pub use load::{LoadError, Trust, load};
pub(super) use load::{is_foreign, load_value};
pub(super) use write::{create, probe};

/// Text after the list of options of every command.
const STATUS_HELP: &str =
    "Exit status: 0 no finding, 1 errors or warnings, 2 a file could not be read.";

/// `remuda hostfile`.
#[derive(Clone, Debug, clap::Args)]
pub struct HostfileArgs {
    #[command(subcommand)]
    command: HostfileCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum HostfileCommand {
    /// Report every error and warning of hostfiles; no host is contacted.
    #[command(after_help = STATUS_HELP, rename_all = "snake_case")]
    Check(check::CheckArgs),
    /// Format hostfiles; comments and the order of hosts are kept.
    #[command(after_help = STATUS_HELP)]
    Fmt(fmt::FmtArgs),
    /// Convert a hostfile to that of another tool.
    #[command(after_help = STATUS_HELP)]
    Convert(convert::ConvertArgs),
    /// Show hosts, slots and ranks of a file, a list or a set of hosts: `hosts & rack[1-3]`.
    #[command(after_help = STATUS_HELP)]
    Show(show::ShowArgs),
    /// Show the differences between two hostfiles.
    #[command(
        after_help = "Exit status: 0 no difference, 1 differences, 2 a file could not be read."
    )]
    Diff(diff::DiffArgs),
}

/// Output and exit status of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// The output that was requested.
    pub stdout: String,
    /// Errors and warnings.
    pub stderr: String,
    /// The exit status.
    pub status: Status,
}

impl CommandOutput {
    fn new() -> Self {
        Self { stdout: String::new(), stderr: String::new(), status: Status::Success }
    }

    /// Raises the exit status: it is 0, 1 or 2, and the larger one is kept.
    fn worsen(&mut self, status: Status) {
        if self.status.code() < status.code() {
            self.status = status;
        }
    }

    /// Adds the error of a file that cannot be used.
    fn refuse(&mut self, error: &LoadError, paint: Paint) {
        self.stderr += &error.screen(paint);
        self.worsen(error.check_status());
    }
}

/// Runs `remuda hostfile …`.
pub fn run(args: &HostfileArgs, paint: Paint) -> CommandOutput {
    match &args.command {
        HostfileCommand::Check(args) => check::run(args, paint),
        HostfileCommand::Fmt(args) => fmt::run(args, paint),
        HostfileCommand::Convert(args) => convert::run(args, paint),
        HostfileCommand::Show(args) => show::run(args, paint),
        HostfileCommand::Diff(args) => diff::run(args, paint),
    }
}

/// Joins texts, one for each line.
fn lines(texts: impl Iterator<Item = impl std::fmt::Display>) -> String {
    use std::fmt::Write as _;
    texts.fold(String::new(), |mut out, text| {
        writeln!(out, "{text}").expect("writing to a String cannot fail");
        out
    })
}

/// Formats a count: `1 host`, `2 hosts`.
fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

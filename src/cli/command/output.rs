//! Output and exit status of the commands that check files, and the format of their findings.

use clap::ValueEnum;

use crate::base::Status;
use crate::cli::resolve::hostfile::LoadError;
use crate::report::diagnostic::Paint;

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
    pub(in crate::cli::command) fn new() -> Self {
        Self { stdout: String::new(), stderr: String::new(), status: Status::Success }
    }

    /// Raises the exit status: it is 0, 1 or 2, and the larger one is kept.
    pub(in crate::cli::command) fn worsen(&mut self, status: Status) {
        if self.status.code() < status.code() {
            self.status = status;
        }
    }

    /// Adds the error of a file that cannot be used.
    pub(in crate::cli::command) fn refuse(&mut self, error: &LoadError, paint: Paint) {
        self.stderr += &error.screen(paint);
        self.worsen(error.check_status());
    }
}

/// Format of findings (`--format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli::command) enum FindingsFormat {
    /// Text for terminals.
    Human,
    /// JSON document of remuda.
    Json,
    /// SARIF 2.1.0.
    Sarif,
    /// Annotations of GitHub Actions.
    Github,
}

/// Joins texts, one for each line.
pub(in crate::cli::command) fn lines(
    texts: impl Iterator<Item = impl std::fmt::Display>,
) -> String {
    use std::fmt::Write as _;
    texts.fold(String::new(), |mut out, text| {
        writeln!(out, "{text}").expect("writing to a String cannot fail");
        out
    })
}

/// Formats a count: `1 host`, `2 hosts`.
pub(in crate::cli::command) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

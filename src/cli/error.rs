//! Errors that prevent a command from starting, and how they are printed.

use super::line::{RefusedInput, RefusedLine};
use crate::base::{Findings, Status};
use crate::cli::codes::machine::{CANNOT_PRINT, INVALID_FOR_WORKERS};
use crate::launch::LaunchError;
use crate::plan::PlanError;
use crate::report::diagnostic::{Paint, show_problems};
use crate::report::text::{paint_message, show_io_error};

/// An error of a command, with its exit status.
#[derive(Debug)]
pub(super) enum CliError {
    /// One line, and help.
    Line {
        /// The exit status.
        status: Status,
        /// Its stable code.
        code: &'static str,
        /// What is wrong: lower case, without a full stop.
        message: String,
        /// What the user can type instead.
        help: Option<String>,
    },
    /// Findings in the command line, or in a text that the command line contains.
    Findings {
        /// The exit status.
        status: Status,
        /// What is wrong, and where in the text.
        findings: Vec<Findings>,
    },
    /// A complete screen.
    Screen {
        /// The exit status.
        status: Status,
        /// The text of the screen.
        text: String,
    },
}

impl CliError {
    /// Returns the error for output that could not be written.
    #[expect(clippy::needless_pass_by_value, reason = "made to be handed to `map_err`")]
    pub(super) fn output(error: std::io::Error) -> Self {
        let why = show_io_error(&error);
        Self::new(Status::Io, CANNOT_PRINT, format!("cannot write standard output: {why}"))
    }

    pub(super) fn new(status: Status, code: &'static str, message: impl Into<String>) -> Self {
        Self::Line { status, code, message: message.into(), help: None }
    }

    /// Returns an error at a place of the command line with an exit status of its own, for a cause
    /// that is not the syntax of the line.
    pub(super) fn refused(status: Status, refused: RefusedLine) -> Self {
        Self::Findings { status, findings: vec![refused.findings] }
    }

    pub(super) fn usage(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Status::Usage, code, message)
    }

    pub(super) fn help(mut self, text: impl Into<String>) -> Self {
        if let Self::Line { help, .. } = &mut self {
            *help = Some(text.into());
        }
        self
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::Line { status, .. }
            | Self::Findings { status, .. }
            | Self::Screen { status, .. } => *status,
        }
    }

    pub(super) fn screen(&self, paint: Paint) -> String {
        match self {
            Self::Findings { findings, .. } => {
                findings.iter().map(|one| show_problems(one, paint)).collect()
            }
            Self::Line { code, message, help, .. } => {
                let help = help.as_ref().map_or_else(String::new, |help| format!("help: {help}\n"));
                paint_message(&format!("error[{code}]: {message}\n{help}"), paint)
            }
            Self::Screen { text, .. } => text.clone(),
        }
    }
}

impl From<RefusedLine> for CliError {
    fn from(refused: RefusedLine) -> Self {
        let status = match refused.input {
            RefusedInput::Line => Status::Usage,
            RefusedInput::File => Status::BadInput,
            RefusedInput::Variable => Status::Config,
        };
        Self::refused(status, refused)
    }
}

impl From<PlanError> for CliError {
    fn from(error: PlanError) -> Self {
        let refused = Self::new(error.status(), INVALID_FOR_WORKERS, error.to_string());
        match error.help() {
            Some(help) => refused.help(help),
            None => refused,
        }
    }
}

impl From<LaunchError> for CliError {
    fn from(error: LaunchError) -> Self {
        let refused = Self::new(error.status(), error.code(), error.to_string());
        match error.help() {
            Some(help) => refused.help(help),
            None => refused,
        }
    }
}

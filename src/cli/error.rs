//! What keeps a command from beginning, and how it is told.

use super::line::RefusedLine;
use super::machine_codes::NOT_PRINTED;
use crate::base::{Findings, Status};
use crate::report::diagnostic::{Paint, show_problems};
use crate::report::summary::paint_ours;

/// See the variants.
#[derive(Debug)]
pub(super) enum CliError {
    /// One line and what to do.
    Line {
        /// The exit status.
        status: Status,
        /// Its stable code.
        code: &'static str,
        /// What is wrong: lower case, no full stop.
        message: String,
        /// What to type.
        help: Option<String>,
    },
    /// Places of the command line, or of a text that it holds.
    Findings {
        /// The exit status.
        status: Status,
        /// What is wrong, and where.
        findings: Vec<Findings>,
    },
    /// A screen that is ready.
    Screen {
        /// The exit status.
        status: Status,
        /// The screen.
        text: String,
    },
}

impl CliError {
    /// What was asked for cannot be shown.
    #[expect(clippy::needless_pass_by_value, reason = "made to be handed to `map_err`")]
    pub(super) fn output(error: std::io::Error) -> Self {
        Self::new(Status::Io, NOT_PRINTED, format!("cannot write standard output: {error}"))
    }

    pub(super) fn new(status: Status, code: &'static str, message: impl Into<String>) -> Self {
        Self::Line { status, code, message: message.into(), help: None }
    }

    /// A place of the command line, for another reason than what was typed.
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
                paint_ours(&format!("error[{code}]: {message}\n{help}"), paint)
            }
            Self::Screen { text, .. } => text.clone(),
        }
    }
}

impl From<RefusedLine> for CliError {
    fn from(refused: RefusedLine) -> Self {
        Self::refused(Status::Usage, refused)
    }
}

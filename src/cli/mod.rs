//! L6: texts in, work handed on. The only module that knows clap; one file per command.

pub mod hostfile;

use std::process::ExitCode;

/// The program: `argv` decides which command runs.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}

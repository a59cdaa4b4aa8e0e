//! `remuda agent job=… node=…`: the command that a launcher starts on every node. The arguments
//! only identify the process in a process list; everything else is sent over the link.
//!
//! Behind ssh, a shell starts the agent: with `link` the agent reports when the stream has become
//! the link, and with `pushed` that the executable has just been copied.
//! `remuda agent DIGEST IDENTITY` reports whether the executable is the expected one. See
//! `transport::ssh`.

use std::ffi::OsString;

use crate::agent::{self, AgentOrigin};
use crate::base::Status;
use crate::cli::codes::machine::SYSTEM;
use crate::cli::error::CliError;
use crate::os::cpu::malloc;
use crate::report::print;
use crate::transport::ssh;

/// Serves the link on standard input and output, or reports whether the executable is the expected
/// one.
pub(in crate::cli) fn main(words: &[OsString]) -> Result<Status, CliError> {
    malloc::use_one_arena();
    let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    match words[..] {
        [_, _, "link", "pushed"] => Ok(agent::main(AgentOrigin::Pushed)),
        [_, _, "link"] => Ok(agent::main(AgentOrigin::Shell)),
        [digest, identity] if !digest.contains('=') => confirm(digest, identity),
        _ => Ok(agent::main(AgentOrigin::Launcher)),
    }
}

fn confirm(digest: &str, identity: &str) -> Result<Status, CliError> {
    match ssh::has_digest(digest, identity) {
        Ok(true) => {
            print(&format!("{digest}\n")).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        Ok(false) => Ok(Status::Findings),
        Err(error) => {
            let message = format!("cannot read the executable of remuda: {error}");
            Err(CliError::new(Status::Io, SYSTEM, message))
        }
    }
}

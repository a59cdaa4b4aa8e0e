//! `remuda agent job=… node=…`: the command that a launcher starts on every node. The arguments
//! only identify the process in a process list; everything else is sent over the link.
//!
//! Behind ssh, a shell starts the agent: with `link` the agent reports when the stream has become
//! the link, and with `pushed` that the executable has just been copied.
//! `remuda agent DIGEST IDENTITY` reports whether the executable is the expected one. See
//! `transport::ssh`.

use std::ffi::OsString;

use crate::agent;
use crate::base::Status;
use crate::os::cpu::malloc;

/// Serves the link on standard input and output, or reports whether the executable is the expected
/// one.
pub(in crate::cli) fn main(words: &[OsString]) -> Status {
    malloc::use_one_arena();
    let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    agent::serve(&words)
}

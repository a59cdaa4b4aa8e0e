//! `remuda agent job=… node=…`: what a launcher starts on every node. The words are there for
//! whoever lists processes; everything else comes over the link.

use crate::agent;
use crate::base::Status;

/// Serves the link on standard input and output.
pub(super) fn main() -> Status {
    agent::main()
}

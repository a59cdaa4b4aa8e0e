//! Programs other than `remuda` that are agents when a launcher starts them as such.

use crate::agent::agent_process::{self, AgentOrigin};
use crate::base::Status;
use crate::report::{print, print_error};
use crate::transport::ssh;

/// The word after the name of the program that makes it an agent.
const AGENT_COMMAND: &str = "agent";

/// Serves as an agent if a launcher has started this process as one, and returns the status with which the
/// process ends; `None`: it is no agent.
///
/// A program that starts jobs with [`Job`](crate::launch::Job) is its own agent: the launcher executes it
/// once on each node, as `PROGRAM agent …`, and over ssh sends it there. Therefore this is the first call of
/// its `main`, before it reads arguments or starts threads.
pub fn serve_if_agent() -> Option<Status> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    match words.split_first() {
        Some((&AGENT_COMMAND, words)) => Some(serve(words)),
        _ => None,
    }
}

/// Serves the link on standard input and output, or reports whether the executable is the expected
/// one. The words follow the name of the command.
pub fn serve(words: &[&str]) -> Status {
    match words {
        [_, _, "link", "pushed"] => agent_process::main(AgentOrigin::Pushed),
        [_, _, "link"] => agent_process::main(AgentOrigin::Shell),
        [digest, identity] if !digest.contains('=') => confirm(digest, identity),
        _ => agent_process::main(AgentOrigin::Launcher),
    }
}

fn confirm(digest: &str, identity: &str) -> Status {
    match ssh::has_digest(digest, identity) {
        Ok(true) => match print(&format!("{digest}\n")) {
            Ok(()) => Status::Success,
            Err(_) => Status::Io,
        },
        Ok(false) => Status::Findings,
        Err(error) => {
            print_error(&format!("error: cannot read the executable of the agent: {error}\n"));
            Status::Io
        }
    }
}

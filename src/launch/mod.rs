//! The launcher: runs a plan and supervises it until all workers have exited (layer L5).
//!
//! [`run`] is one loop: select → step → perform. A message of a node becomes an event of the job;
//! an effect of the job becomes a message to the nodes. It parses no text.

mod argument_hints;
mod awaited;
pub mod codes;
mod dispatcher;
mod failure_report;
mod finish;
mod gather;
mod grave;
mod hearing;
mod history;
mod input;
mod input_hint;
mod joining;
mod losing;
mod loss_help;
mod metrics;
mod node;
mod options;
mod orders;
mod pause;
mod probes;
mod recording;
mod renewing;
#[cfg(test)]
mod scale;
mod signals;
mod starting;
mod termination_log;
mod timeout_report;
mod unreachable;
mod verdict;
mod voice;
mod wishes;

pub use argument_hints::LauncherFlag;
pub use dispatcher::run;
pub use joining::{MemberOptions, join};
pub use options::{
    CauseRule, ContinueWith, Cores, DialOptions, FileOf, Framing, GpuSharing, LaunchError, Options,
    StdinTo, SupervisorOptions, Transport, WorkersFile,
};
pub use termination_log::{TerminationLog, write_refusal_message};

//! The launcher: runs a plan and supervises it until all workers have exited (layer L5).
//!
//! [`run()`] is one loop: select → step → perform. A message of a node becomes an event of the job;
//! an effect of the job becomes a message to the nodes. [`Job`] is the launcher for other programs.

pub mod codes;
mod dispatcher;
mod final_record;
mod history;
mod job;
mod manager;
pub(crate) mod node;
mod options;
mod outcome;
mod pod;
mod progress;
mod run;
mod run_record;
#[cfg(test)]
pub(crate) mod scale;
mod screen;
mod startup;
mod supervise;
pub(crate) mod user;

pub use crate::job::{ElasticNodes, FailureCause, MeetingPoint, Newcomers};
pub use crate::plan::Accelerator;
pub use job::{Job, JobError, JobOutcome};
pub use manager::node::serve_node;
pub use node::join_limit::JoinLimit;
pub use options::{
    AllocationEnd, CauseRule, CommandOptions, ContinueWith, Cores, DeviceOptions, DialOptions,
    FailureOptions, FileOf, Framing, GpuSharing, KeptState, LaunchError, LimitOptions, NewestStep,
    NodeOptions, Options, OutputOptions, PortOrigin, StdinTo, SupervisorOptions, Transport,
    WaitHelp, WorkersFile,
};
pub use pod::member::join;
pub use pod::member_options::MemberOptions;
pub use pod::termination_log::{TerminationLog, write_refusal_message};
pub use run::run;
pub use screen::argument_hints::LauncherFlag;

//! The agent: supervisor of the workers of one node (layer L5).
//!
//! It makes no policy decisions about the job: it executes the requests of its link and stops all
//! workers when the link closes. `state` decides what happens next on the node, `event_loop` waits
//! for events, `executor` performs effects.
//!
//! ```text
//! launcher ══ link ══ agent ── packets ── shim ── workers
//! ```
//!
//! The shim is forked before any thread exists and is the workers' parent, so only it can wait for
//! them. Agent and shim are both subreapers: if one of them exits, the other one reaps the workers.

mod affinity;
mod agent_process;
mod connectivity;
mod diagnostics;
mod entry;
mod error_files;
mod event_loop;
mod executor;
mod first_line;
mod flow_control;
mod gpu_locks;
mod group_check;
mod instance_lock;
mod launcher_link;
mod notes;
mod output;
mod ports;
mod preflight;
mod python_package;
mod rank_link;
mod script_hints;
mod shim;
mod state;
mod uplink;
mod virtual_env;
mod worker_io;
mod worker_start;

pub use diagnostics::shared_memory;
pub use entry::{serve, serve_if_agent};
#[cfg(test)]
pub(crate) use flow_control::Credit;
pub use preflight::{OWN_EXECUTABLE, find_missing};
pub use shim::{FromShim, TERMINATION_SIGNALS, ToShim};
pub use state::{
    AgentEffect, AgentEvent, AgentState, ExitReport, GroupCheck, PreflightRequest, ShimCheck,
    ShimStatus, StartRequest,
};

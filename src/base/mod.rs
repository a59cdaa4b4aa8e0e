//! Basic types: ids, the clock, exit statuses, diagnostics, environment variables (layer L0).
//!
//! Imports no other module. It does no I/O except for the clock and the reader of the environment, which
//! all other modules use.

pub mod clock;
pub mod diagnostic;
pub mod env_vars;
pub mod exit;
pub mod ids;
pub mod shell;
pub mod svg;
pub mod user_name;

pub use diagnostic::{
    Applicability, Diagnostic, Explanation, Findings, Severity, Source, Span, Suggestion, story,
};
pub use exit::{Status, WorkerExit};
pub use ids::{Epoch, HostName, JobId, LocalRank, NodeRank, Rank, Slot};
pub use user_name::UserName;

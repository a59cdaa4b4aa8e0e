//! Common types of the program (layer L0). It imports no other module of the crate, and does no I/O
//! except in `clock` and `env_vars`, which all other modules must use.

pub mod chart;
pub mod clock;
pub mod diagnostic;
mod duration;
pub mod env_vars;
pub mod exit;
pub mod ids;
mod note;
pub mod shell;
pub mod user_name;

pub use diagnostic::{
    Applicability, Diagnostic, Explanation, Findings, Severity, Source, Span, Suggestion,
    explanation, show_typed,
};
pub use duration::show_duration;
pub use exit::{Status, WorkerExit};
pub use ids::{Epoch, HostName, JobId, LocalRank, NodeRank, Rank, Slot};
pub use note::Note;
pub use user_name::UserName;

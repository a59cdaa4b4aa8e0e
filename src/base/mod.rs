//! Common types of the program (layer L0). It imports no other module of the crate, and does no I/O
//! except in `clock` and `env_vars`, which all other modules must use.

mod amount;
pub mod chart;
pub mod clock;
mod debug_as_message;
pub mod diagnostic;
mod duration;
pub mod env_vars;
pub mod exit;
pub mod ids;
mod io_text;
mod lock;
mod measured;
mod note;
pub mod order;
mod python_int;
pub mod shell;
#[cfg(feature = "cli")]
mod similar;
mod text;
pub mod user_name;

pub use amount::show_bytes;
pub(crate) use debug_as_message::debug_as_message;
pub use diagnostic::{
    Applicability, Diagnostic, Explanation, Findings, Severity, Source, Span, Suggestion,
    explanation, show_typed,
};
pub use duration::show_duration;
pub use exit::{Status, WorkerExit};
pub use ids::{Epoch, HostName, JobId, LocalRank, NodeRank, Rank, Slot};
pub use io_text::{show_create_dir_error, show_io_error};
pub(crate) use lock::lock;
pub use measured::Measured;
pub use note::Note;
pub use python_int::python_int;
#[cfg(feature = "cli")]
pub use similar::nearest;
pub use text::{NotUtf8, decode_text, prefix};
pub use user_name::UserName;

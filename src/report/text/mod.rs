//! Text of remuda for a screen: findings, messages, amounts, and the escape of what workers write.
//! Pure.

mod amounts;
mod columns;
pub mod diagnostic;
mod failure;
mod message;
mod neutral;

pub use crate::base::show_io_error;
pub use amounts::{show_bytes, show_count, show_duration, show_last_output, show_processes};
pub use columns::{Align, show_columns};
pub use failure::{Failure, ReportScreen, show_failure};
pub use message::{MessageLevel, paint_message, show_help, show_step};
pub(super) use neutral::incomplete_suffix_len;
pub use neutral::{escape_control, escape_control_into};

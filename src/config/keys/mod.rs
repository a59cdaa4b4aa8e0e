//! Every key that DeepSpeed 0.19.8 reads, with its type, its default, and its status in remuda.
//!
//! The tables are data: the checks walk them, and the table of COMPAT.md is made from them.

mod checkpoint;
mod data;
mod monitors;
mod optimizer;
mod parallel;
mod precision;
mod schedule;
mod spec;
mod tools;
mod top;
mod zero;

pub use optimizer::{OPTIMIZERS, OptimizerKind, OptimizerSpec};
pub use schedule::{SCHEDULES, ScheduleKind, ScheduleSpec};
pub use spec::{KeyDefault, KeyKind, KeySpec, KeyStatus, SectionReader, SectionSpec};
pub(super) use top::section_of;
pub use top::{TOP, all_sections};

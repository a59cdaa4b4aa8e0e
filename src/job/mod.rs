//! L3: what happens next. A job is a value that is told events and the time, and answers with
//! effects; it awaits nothing, reads no clock and knows no wire.

mod cause;
mod step;

pub use cause::{Cause, End, NodeLoss, StartFailure, StartStep, Verdict};
pub use step::{Effect, Event, Job, OnFailure, Policy, StopReason};

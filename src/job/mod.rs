//! L3: what happens next. A job is a value that is told events and the time, and answers with
//! effects; it awaits nothing, reads no clock and knows no wire.

mod cause;
mod ending;
mod event;
mod lost;
mod requests;
mod restarting;
mod running;
mod starting;
mod state;
mod stopping;
#[cfg(test)]
mod testing;

pub use cause::{Cause, End, NodeLoss, StartFailure, StartStep, Verdict};
pub use event::{Effect, Event, OnEarlyLoss, OnFailure, OnTerm, Policy, StopReason, Warning};
pub use requests::{Requests, SAME_REQUEST};
pub use state::Job;

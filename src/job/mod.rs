//! State machine of a job: events and the time in, effects out (layer L3).
//!
//! It awaits nothing, reads no clock and does not depend on the wire protocol.

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

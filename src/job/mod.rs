//! State machine of a job: events and the time in, effects out (layer L3).
//!
//! It awaits nothing, reads no clock and does not depend on the wire protocol.

mod cause;
mod ending;
mod error_file;
mod event;
mod evidence;
mod failure_texts;
mod lost;
mod requests;
mod restarting;
mod root_cause;
mod running;
mod signals;
mod starting;
mod state;
mod stopping;
#[cfg(test)]
mod testing;
mod traceback;

pub use cause::{
    FailureCause, NodeLoss, StartFailure, StartStep, Verdict, WorkerEnd, WorkerReports,
};
pub use error_file::{RecordedException, parse_error_file};
pub use event::{Effect, Event, OnEarlyLoss, OnFailure, OnTerm, Policy, StopReason, Warning};
pub use evidence::{Evidence, EvidenceSource};
pub use failure_texts::{FailureClass, classify, component_of};
pub use requests::{REQUEST_MERGE_INTERVAL, Requests};
pub use state::Job;
pub use traceback::{CodePlace, Traceback, last_traceback};

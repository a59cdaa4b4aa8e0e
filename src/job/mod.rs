//! State machine of a job: events and the time in, effects out (layer L3).
//!
//! It awaits nothing, reads no clock and does not depend on the wire protocol.

pub(crate) mod cause;
mod event;
mod requests;
mod signal_numbers;
pub(crate) mod state;
#[cfg(test)]
mod testing;

pub(crate) use cause::failure::AgentExitReason;

pub use cause::code_place::CodePlace;
pub(crate) use cause::error_file::with_error_code;
pub use cause::error_file::{RecordedException, parse_error_file};
pub use cause::evidence::{Evidence, EvidenceSource, WENT_ON_AFTER};
pub use cause::failure::{
    FailureCause, NodeLoss, StartFailure, StartStep, Verdict, WorkerEnd, WorkerReports,
};
pub use cause::known_texts::{FailureClass, classify, component_of};
pub use cause::traceback::{Traceback, last_traceback, stack_place};
pub use event::{
    Effect, ElasticNodes, Event, FAILURES_MAX, MeetingPoint, Newcomers, OnEarlyLoss, OnFailure,
    OnTerm, Policy, SilentNode, StopReason, Warning,
};
pub use requests::{REQUEST_MERGE_INTERVAL, Requests};
pub use state::job_state::JobState;
pub(crate) use state::restarting::PAUSE_MIN;

//! Check of all hosts of a hostfile (layer L5).
//!
//! [`visit()`] connects to every node as a launch does and collects facts; [`judge()`] is pure and turns
//! the facts into findings. It starts no job; `cli` decides what follows from the findings.

mod case;
pub mod codes;
mod judge;
mod rounds;
mod screen;
mod visit;

pub use case::{Case, Clock, Finding, MasterPort, NodeFacts, Patient, Seen, SlotsAre};
pub use judge::{SHM_BYTES_MIN, judge};
pub use screen::{
    DOCTOR_VERSION, hosts_without_errors, refusal, show, show_findings, show_json, status,
};
pub use visit::{Reach, Visit, VisitError, Visited, visit};

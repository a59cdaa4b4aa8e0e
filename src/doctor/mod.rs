//! L5: the hosts of a file as they really are. [`visit()`] goes to every node over the link of a launch
//! and comes back with facts; [`judge()`] makes findings of them, and is pure. Starts no job; `cli`
//! decides what is done about it.

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

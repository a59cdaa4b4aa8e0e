//! L5: examination of the hosts of a hostfile. `visit` collects facts from every node over the
//! same link as a launch; `judge` derives findings from them, and is pure. No job is started;
//! `cli` decides what follows from the findings.

mod case;
pub mod codes;
mod judge;
mod rounds;
mod screen;
mod visit;

pub use case::{Clock, ClusterFacts, Finding, MasterPort, NodeFacts, Patient, Seen, SlotsAre};
pub use judge::{SHM_BYTES_MIN, judge};
pub use screen::{
    DOCTOR_VERSION, hosts_without_errors, refusal, show, show_findings, show_json, status,
};
pub use visit::{NodeAccess, Visit, VisitError, Visited, visit};

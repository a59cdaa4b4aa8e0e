//! Examination of the hosts of a hostfile (layer L5). `visit` collects facts from every node over the
//! same link as a launch; `judge` derives findings from them, and is pure. No job is started;
//! `cli` decides what follows from the findings.

mod case;
pub mod codes;
mod judge;
mod rounds;
mod screen;
mod visit;

pub use case::{
    Clock, ClusterFacts, ExamOutcome, ExaminedNode, Finding, MasterPort, NodeFacts, SlotDevice,
};
pub use judge::SHM_BYTES_MIN;
pub use judge::diagnose;
pub use screen::{DOCTOR_VERSION, refusal, show, show_findings, show_json, status, usable_hosts};
pub use visit::{ExamError, ExamRequest, ExamResult, NodeAccess, examine_nodes};

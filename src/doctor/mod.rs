//! Examination of the hosts of a hostfile (layer L5). `examine` collects facts from every node over the
//! same link as a launch; `judge` derives findings from them, and is pure. No job is started;
//! `cli` decides what follows from the findings.

pub mod codes;
mod examine;
mod facts;
mod judge;
mod partners;
mod screen;

pub use examine::{ExamError, ExamRequest, ExamResult, NodeAccess, examine_nodes};
pub use facts::{
    Clock, ClusterFacts, ExamOutcome, ExaminedNode, Finding, MasterPort, NodeFacts, SlotDevice,
};
pub use judge::SHM_BYTES_MIN;
pub use judge::diagnose;
pub use screen::{DOCTOR_VERSION, refusal, show, show_findings, show_json, status, usable_hosts};

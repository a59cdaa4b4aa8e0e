//! Values that every mechanism of communication shares: errors, operations, options, deadlines, memory of the
//! caller.

pub(crate) mod abort;
pub(crate) mod deadline;
pub(crate) mod error;
pub(crate) mod ffi_memory;
pub(crate) mod fingerprint;
pub(crate) mod lent_ranges;
pub(crate) mod operation;
pub(crate) mod options;
pub(crate) mod pending;
pub(crate) mod roster;
pub(crate) mod spin;
pub(crate) mod traffic;
pub(crate) mod wait_report;

//! The codes of errors that only the command line has.

pub(super) mod machine;
pub(super) mod pod;

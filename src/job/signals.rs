//! Signals that stop workers, by number.

pub(crate) const SIGABRT: i32 = 6;

pub(crate) const SIGKILL: i32 = 9;

pub(crate) const SIGTERM: i32 = 15;

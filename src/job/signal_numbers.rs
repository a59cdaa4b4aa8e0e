//! Numbers of the signals that stop workers.

pub(crate) const SIGABRT: i32 = 6;

pub(crate) const SIGKILL: i32 = 9;

pub(crate) const SIGTERM: i32 = 15;

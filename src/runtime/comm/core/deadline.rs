//! Deadline of an operation.

use std::time::{Duration, Instant};

use crate::runtime::comm::core::spin::Spin;

/// Deadline of an operation, and how it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// Start of the operation.
    pub(crate) since: Instant,
    /// Time by which the operation must be complete.
    pub(crate) until: Instant,
    /// Polls before a waiting thread sleeps.
    pub(crate) spin: Spin,
}

/// Time for which a rank that has dropped its group is not reported: if it exits within it, the exit
/// is reported as the cause instead.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(500);

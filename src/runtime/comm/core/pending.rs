//! Operations in flight, wherever they run.

use std::time::Duration;

use crate::runtime::comm::core::error::CollectiveError;

/// Outcome of an operation.
pub(crate) type Outcome = Result<(), CollectiveError>;

/// An operation that runs on the communication thread or in a stream of a device.
pub(crate) trait PendingOperation: Send {
    /// Waits for at most `limit`; returns whether the operation has ended.
    fn poll(&mut self, limit: Duration) -> bool;

    /// Takes the outcome of an operation that has ended.
    fn take(&mut self) -> Option<Outcome>;
}

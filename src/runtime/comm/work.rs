//! [`Work`]: the handle of an operation in flight.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::lock;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::pending::PendingOperation;
use crate::runtime::comm::group::Group;

/// Handle of an operation in flight and owner of its memory. Dropping it waits until the operation ends or
/// its deadline passes.
#[must_use = "dropping it waits"]
pub struct Work<B> {
    pending: Box<dyn PendingOperation>,
    has_ended: bool,
    /// Memory of the operation, which shares it until it ends.
    memory: Arc<Mutex<Option<B>>>,
    group: Group,
}

impl<B> Work<B> {
    pub(crate) fn new(
        pending: impl PendingOperation + 'static,
        memory: Arc<Mutex<Option<B>>>,
        group: Group,
    ) -> Self {
        Self { pending: Box::new(pending), has_ended: false, memory, group }
    }

    /// Waits until the operation ends and returns the memory.
    pub fn wait(mut self) -> Result<B, CollectiveError> {
        self.poll(Duration::MAX);
        let memory = lock(&self.memory).take();
        let outcome = self.pending.take().expect("a wait without a limit ends with an outcome");
        outcome.inspect_err(|error| self.group.report(error))?;
        Ok(memory.expect("memory is taken once, by the method that consumes the handle"))
    }

    /// Waits for at most `limit`; if the operation has not ended by then, returns the handle.
    pub fn wait_for(mut self, limit: Duration) -> Result<Result<B, CollectiveError>, Self> {
        if self.poll(limit) { Ok(self.wait()) } else { Err(self) }
    }

    /// Returns whether the operation has ended, successfully or not.
    pub fn is_completed(&mut self) -> bool {
        self.poll(Duration::ZERO)
    }

    /// Aborts the group and with it the operation.
    pub fn abort(self, reason: &str) {
        self.group.abort(reason);
    }

    fn poll(&mut self, limit: Duration) -> bool {
        self.has_ended = self.has_ended || self.pending.poll(limit);
        self.has_ended
    }
}

impl<B> Drop for Work<B> {
    fn drop(&mut self) {
        self.poll(Duration::MAX);
    }
}

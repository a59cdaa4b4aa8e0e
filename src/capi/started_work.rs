//! Operations in flight, whatever memory they use.

use std::time::Duration;

use crate::runtime::{CollectiveError, Work};

/// Operation in flight, behind a pointer of the caller; see `remuda_wait`.
pub struct StartedWork {
    /// Taken when the operation has ended.
    work: Option<Box<dyn AnyWork>>,
}

impl StartedWork {
    pub(super) fn new<M: Send + 'static>(work: Work<M>) -> Self {
        Self { work: Some(Box::new(work)) }
    }

    /// Waits for at most `limit`; `None` if the operation has not ended by then.
    pub(super) fn wait_for(&mut self, limit: Duration) -> Option<Result<(), CollectiveError>> {
        match self.work.take()?.wait_for_outcome(limit) {
            Ok(outcome) => Some(outcome),
            Err(work) => {
                self.work = Some(work);
                None
            }
        }
    }

    /// Whether the operation has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        self.work.as_mut().is_none_or(|work| work.has_ended())
    }
}

/// [`Work`] without the type of its memory.
trait AnyWork: Send {
    fn wait_for_outcome(
        self: Box<Self>,
        limit: Duration,
    ) -> Result<Result<(), CollectiveError>, Box<dyn AnyWork>>;

    fn has_ended(&mut self) -> bool;
}

impl<M: Send + 'static> AnyWork for Work<M> {
    fn wait_for_outcome(
        self: Box<Self>,
        limit: Duration,
    ) -> Result<Result<(), CollectiveError>, Box<dyn AnyWork>> {
        match (*self).wait_for(limit) {
            Ok(outcome) => Ok(outcome.map(drop)),
            Err(work) => Err(Box::new(work)),
        }
    }

    fn has_ended(&mut self) -> bool {
        self.is_completed()
    }
}

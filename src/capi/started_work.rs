//! Operations in flight, whatever memory they use.

use std::time::Duration;

#[cfg(feature = "nccl")]
use crate::runtime::device::DeviceWork;
use crate::runtime::{CollectiveError, Work};

/// Operation in flight, behind a pointer of the caller; see `remuda_wait`.
pub enum StartedWork {
    /// On memory of the host; the handle is taken when the operation has ended.
    Host(Option<Box<dyn AnyWork>>),
    /// On memory of a GPU.
    #[cfg(feature = "nccl")]
    Device(DeviceWork),
}

impl StartedWork {
    pub(super) fn new<M: Send + 'static>(work: Work<M>) -> Self {
        Self::Host(Some(Box::new(work)))
    }

    /// Waits for at most `limit`; `None` if the operation has not ended by then.
    pub(super) fn wait_for(&mut self, limit: Duration) -> Option<Result<(), CollectiveError>> {
        match self {
            Self::Host(own) => match own.take()?.wait_for_outcome(limit) {
                Ok(outcome) => Some(outcome),
                Err(work) => {
                    *own = Some(work);
                    None
                }
            },
            #[cfg(feature = "nccl")]
            Self::Device(work) => work.wait_for(limit),
        }
    }

    /// Whether the operation has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Self::Host(work) => work.as_mut().is_none_or(|work| work.has_ended()),
            #[cfg(feature = "nccl")]
            Self::Device(work) => work.wait_for(Duration::ZERO).is_some(),
        }
    }
}

/// [`Work`] without the type of its memory.
pub trait AnyWork: Send {
    /// Waits for at most `limit`; returns itself if the operation has not ended by then.
    fn wait_for_outcome(
        self: Box<Self>,
        limit: Duration,
    ) -> Result<Result<(), CollectiveError>, Box<dyn AnyWork>>;

    /// Whether the operation has ended.
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

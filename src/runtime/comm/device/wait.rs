//! Waits for operations of a device, with a deadline, until a rank is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, DriverError};

use crate::base::clock;
use crate::cuda::driver::driver_message;
use crate::cuda::nccl::{CommProgress, Communicator, NcclError, ras};
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::group::Group;
use crate::runtime::error::Result;

/// Reason why an operation failed.
pub(super) enum OperationFailure {
    Cause(Cause),
    Collective(CollectiveError),
}

impl From<DriverError> for OperationFailure {
    fn from(error: DriverError) -> Self {
        Self::Cause(Cause::Backend(format!("the GPU reported an error: {}", driver_message(error))))
    }
}

impl From<NcclError> for OperationFailure {
    fn from(error: NcclError) -> Self {
        Self::Cause(Cause::Backend(error.to_string()))
    }
}

impl From<CollectiveError> for OperationFailure {
    fn from(error: CollectiveError) -> Self {
        Self::Collective(error)
    }
}

/// Waits for device operations until they complete, a rank is lost or the deadline passes.
pub(super) struct DeviceDeadline<'a> {
    pub(super) group: &'a Group,
    pub(super) stream: &'a Arc<CudaStream>,
    pub(super) until: Instant,
}

impl<'a> DeviceDeadline<'a> {
    pub(super) fn new(group: &'a Group, stream: &'a Arc<CudaStream>) -> Self {
        Self { group, stream, until: clock::after(clock::now(), group.timeout()) }
    }

    /// This rank, and the number of ranks.
    pub(super) fn ranks(&self) -> (usize, usize) {
        (self.group.rank(), self.group.world_size())
    }

    /// Waits until the operation ends, a rank is lost, or the deadline passes.
    pub(super) fn wait(
        &self,
        is_done: &mut dyn FnMut() -> Result<bool, OperationFailure>,
        timeout_message: impl FnOnce() -> String,
    ) -> Result<(), OperationFailure> {
        self.poll(is_done, || self.check(), timeout_message)
    }

    /// Waits until something ends that needs no other rank, or the deadline passes.
    pub(super) fn wait_despite_loss(
        &self,
        is_done: &mut dyn FnMut() -> Result<bool, OperationFailure>,
        timeout_message: impl FnOnce() -> String,
    ) -> Result<(), OperationFailure> {
        self.poll(is_done, || Ok(()), timeout_message)
    }

    fn poll(
        &self,
        is_done: &mut dyn FnMut() -> Result<bool, OperationFailure>,
        check: impl Fn() -> Result<(), OperationFailure>,
        timeout_message: impl FnOnce() -> String,
    ) -> Result<(), OperationFailure> {
        let mut polls = 0u32;
        while !is_done()? {
            check()?;
            if self.until <= clock::now() {
                return Err(OperationFailure::Cause(Cause::Backend(timeout_message())));
            }
            polls += 1;
            pause(polls);
        }
        Ok(())
    }

    /// Fails if a rank is lost or the group is aborted.
    pub(super) fn check(&self) -> Result<(), OperationFailure> {
        self.group.abort_cause().map_or(Ok(()), |cause| Err(OperationFailure::Cause(cause)))
    }

    /// Waits until NCCL has enqueued the operation.
    pub(super) fn wait_enqueued(&self, nccl: &Communicator) -> Result<(), OperationFailure> {
        self.wait(&mut || Ok(nccl.progress()? == CommProgress::Done), nccl_timeout_message)
    }
}

/// Pause between two polls: none at first, because small operations take microseconds, then longer,
/// because large ones should not occupy a processor.
pub(super) fn pause(polls: u32) {
    const SPINS: u32 = 200;
    const YIELDS: u32 = 2000;
    const SLEEP: Duration = Duration::from_micros(50);
    match polls {
        ..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        YIELDS.. => std::thread::sleep(SLEEP),
    }
}

pub(super) fn already_failed() -> OperationFailure {
    OperationFailure::Cause(Cause::Backend(
        "an earlier operation of this device group failed".to_owned(),
    ))
}

pub(super) fn nccl_timeout_message() -> String {
    let status = ras::report();
    format!("NCCL did not complete the operation within the timeout of the group{status}")
}

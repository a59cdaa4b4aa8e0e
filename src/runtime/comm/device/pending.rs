//! Completion of an operation in the stream of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaEvent;

use crate::base::clock;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::core::pending::{Outcome, PendingOperation};
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::connection::DeviceConnection;
use crate::runtime::comm::device::wait::{
    DeviceDeadline, OperationFailure, already_failed, nccl_timeout_message, pause,
};
use crate::runtime::comm::executor::OperationEvent;

/// An operation that NCCL has enqueued on the stream.
pub(super) struct PendingDevice<F> {
    pub(super) connection: Arc<DeviceConnection>,
    pub(super) op: Operation,
    /// Bytes of this rank's memory.
    pub(super) bytes: u64,
    /// Event after the operation in the stream.
    pub(super) event: CudaEvent,
    pub(super) until: Instant,
    pub(super) on_event: F,
    pub(super) outcome: Option<Outcome>,
}

impl<F: Fn(OperationEvent) + Send> PendingDevice<F> {
    /// Whether the operation has ended; fails if a rank is lost or the deadline has passed.
    fn check(&self) -> Result<bool, OperationFailure> {
        if is_complete(&self.event, self.connection.lock().as_ref())? {
            return Ok(true);
        }
        let deadline = DeviceDeadline::new(&self.connection.group, &self.connection.stream);
        deadline.check()?;
        if self.until <= clock::now() {
            return Err(OperationFailure::Cause(Cause::Backend(nccl_timeout_message())));
        }
        Ok(false)
    }

    /// The outcome, if the operation has ended.
    fn advance(&self) -> Option<Outcome> {
        match self.check() {
            Ok(false) => None,
            Ok(true) => {
                (self.on_event)(OperationEvent::Done);
                Some(Ok(()))
            }
            Err(trouble) => {
                let operation = (self.op, self.bytes);
                Some(Err(self.connection.abandon(self.connection.lock(), operation, trouble)))
            }
        }
    }
}

impl<F: Fn(OperationEvent) + Send> PendingOperation for PendingDevice<F> {
    fn poll(&mut self, limit: Duration) -> bool {
        let end = clock::after(clock::now(), limit);
        let mut polls = 0u32;
        while self.outcome.is_none() {
            self.outcome = self.advance();
            if self.outcome.is_none() && end <= clock::now() {
                return false;
            }
            polls += 1;
            pause(polls);
        }
        true
    }

    fn take(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }
}

/// Whether the work before an event has ended; fails if the device or NCCL reports an error.
pub(super) fn is_complete(
    event: &CudaEvent,
    backend: Option<&ActiveBackend>,
) -> Result<bool, OperationFailure> {
    if event.try_is_complete()? {
        return Ok(true);
    }
    match backend {
        Some(ActiveBackend::Nccl(nccl)) => {
            nccl.communicator.progress()?;
            Ok(false)
        }
        Some(ActiveBackend::Staged(_)) => Ok(false),
        None => Err(already_failed()),
    }
}

//! Operations that are started: NCCL has them in its stream when the call returns, and the ranks compare their calls
//! meanwhile.
//!
//! The communication thread of the group watches an operation: it waits for the calls of the other ranks, then for the
//! end of the operation in the stream. So the deadline holds and a lost rank is named although nothing waits on the host.
//! A failure aborts NCCL's communicator, which ends its work in the stream, and with that the waits of other streams.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use cudarc::driver::sys::{CUevent_wait_flags, CUstream};
use cudarc::driver::{CudaContext, CudaEvent, result};

use crate::base::{clock, lock};
use crate::cuda::driver::driver_message;
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::OperationCall;
use crate::runtime::comm::core::pending::{Outcome, PendingOperation};
use crate::runtime::comm::device::connection::SharedBackend;
use crate::runtime::comm::device::pending::is_complete;
use crate::runtime::comm::device::wait::{OperationFailure, nccl_timeout_message, pause};
use crate::runtime::comm::executor::PendingOutcome;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::dtype::element::Dtype;
use crate::runtime::error::{Error, Result};

/// How ranks compare their calls.
pub(super) type Comparison =
    dyn FnOnce(&mut HostBackend, OperationCall, Deadline) -> Result<(), Cause> + Send;

/// An operation of a [`DeviceGroup`](super::DeviceGroup) in flight. Dropping it does not wait.
pub struct DeviceWork {
    pending: PendingOutcome,
    outcome: Option<Outcome>,
    /// Event after the operation in its stream; `None` if it has ended.
    end: Option<Arc<CudaEvent>>,
    group: Group,
}

impl DeviceWork {
    /// An operation whose outcome the watch will know.
    pub(super) fn new(pending: PendingOutcome, end: Option<Arc<CudaEvent>>, group: &Group) -> Self {
        Self { pending, outcome: None, end, group: group.clone() }
    }

    /// An operation that has ended, successfully.
    pub(super) fn ended(group: &Group) -> Self {
        Self::new(PendingOutcome::ready(Ok(())), None, group)
    }

    /// Waits for at most `limit`; returns the outcome of the operation, if it has ended by then.
    pub fn wait_for(&mut self, limit: Duration) -> Option<Result<(), CollectiveError>> {
        if self.outcome.is_none() && self.pending.poll(limit) {
            self.outcome = self.pending.take();
            if let Some(Err(error)) = &self.outcome {
                self.group.report(error);
            }
        }
        self.outcome.clone()
    }

    /// Makes work that `stream` gets later wait until the operation has ended; the host does not wait. Null is the
    /// default stream.
    ///
    /// # Safety
    /// `stream` is null or a stream of the device of the operation that lives through the call.
    ///
    /// # Errors
    /// That of the operation if it is known to have failed. If it fails later, the work of the stream goes on, and the
    /// next operation of the group fails.
    pub unsafe fn order(&mut self, stream: *mut c_void) -> Result<()> {
        if let Some(Err(error)) = self.wait_for(Duration::ZERO) {
            return Err(error.into());
        }
        let Some(end) = &self.end else { return Ok(()) };
        let failed = |error| {
            Error::Device(format!("cannot order the streams of a GPU: {}", driver_message(error)))
        };
        end.context().bind_to_thread().map_err(failed)?;
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event lives, and the caller promises that the stream does.
        unsafe { result::stream::wait_event(stream.cast::<_>() as CUstream, end.cu_event(), flags) }
            .map_err(failed)
    }
}

/// What the communication thread knows about an operation.
pub(super) struct Watch {
    pub(super) context: Arc<CudaContext>,
    pub(super) backend: SharedBackend,
    /// The event of the end, once the operation was submitted.
    pub(super) end: Receiver<Option<Arc<CudaEvent>>>,
}

impl Watch {
    /// Waits for the calls of the other ranks, then for the end of the operation.
    pub(super) fn run(
        self,
        host: &mut HostBackend,
        call: OperationCall,
        dtype: Dtype,
        compare: Box<Comparison>,
    ) -> Result<(), CollectiveError> {
        let outcome = host.run_of(call, dtype.bytes(), |host, call, deadline| {
            compare(host, call, deadline)?;
            self.wait(host, deadline.until.saturating_duration_since(deadline.since))
        });
        if outcome.is_err() {
            let _ = self.context.bind_to_thread();
            // Ends the work of NCCL in the stream.
            *lock(&self.backend) = None;
        }
        outcome
    }

    /// Waits for the end for at most `limit`, which begins when all ranks have called the operation.
    fn wait(&self, host: &HostBackend, limit: Duration) -> Result<(), Cause> {
        let not_submitted = || Cause::Backend("the operation was not submitted".to_owned());
        let Some(end) = self.end.recv().map_err(|_| not_submitted())? else { return Ok(()) };
        self.context.bind_to_thread().map_err(|error| cause_of(error.into()))?;
        let until = clock::after(clock::now(), limit);
        let mut polls = 0u32;
        while !self.has_ended(&end).map_err(cause_of)? {
            host.node.check_ranks()?;
            if until <= clock::now() {
                return Err(Cause::Backend(nccl_timeout_message()));
            }
            polls = polls.saturating_add(1);
            pause(polls);
        }
        Ok(())
    }

    /// While another operation is submitted, NCCL is not asked for errors.
    fn has_ended(&self, end: &CudaEvent) -> Result<bool, OperationFailure> {
        match self.backend.try_lock() {
            Ok(backend) => is_complete(end, backend.as_ref()),
            Err(_) => Ok(end.try_is_complete()?),
        }
    }
}

fn cause_of(failure: OperationFailure) -> Cause {
    match failure {
        OperationFailure::Cause(cause) => cause,
        OperationFailure::Collective(error) => error.cause,
    }
}

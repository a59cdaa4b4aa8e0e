//! The connected devices of a group.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cudarc::driver::CudaStream;

use crate::base::{clock, lock};
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::core::traffic::TrafficCounters;
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::ffi_kernels::KernelCache;
use crate::runtime::comm::device::nccl::Nccl;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::Dtype;

/// Time limit for the other ranks to finalize a communicator when it is dropped.
const FINALIZE_MAX: Duration = Duration::from_secs(10);

/// Backend of a connection, and of its operations in flight.
pub(super) type SharedBackend = Arc<Mutex<Option<ActiveBackend>>>;

/// The ranks of a group, the stream of this rank, and the backend that moves the data.
pub(super) struct DeviceConnection {
    pub(super) group: Group,
    pub(super) stream: Arc<CudaStream>,
    /// `None` once an operation has failed. Operations that were started end it, too.
    pub(super) backend: SharedBackend,
    /// Held while an operation takes its place in the order of the group and in that of NCCL, which are the same.
    pub(super) turn: Mutex<()>,
    /// Reason why the backend is not NCCL.
    pub(super) obstacle: Option<String>,
    /// Kernels on gradients; `None` until one is needed.
    pub(super) kernels: Mutex<Option<KernelCache>>,
    /// Operations on device memory that this rank has enqueued.
    pub(super) traffic: TrafficCounters,
}

impl DeviceConnection {
    /// Aborts the group for all ranks after a failure; returns the error.
    pub(super) fn fail(&self, op: Operation, trouble: OperationFailure) -> CollectiveError {
        let cause = match trouble {
            OperationFailure::Collective(error) => return error,
            OperationFailure::Cause(cause) => cause,
        };
        self.group.abort(&cause.to_string());
        let rank = self.group.inner.roster.own_job_rank();
        let error = CollectiveError::rejected(op, rank, cause);
        self.group.report(&error);
        error
    }

    /// Ends the backend after the failure of an operation on `bytes` of memory, and aborts the group. The backend is
    /// free again before that: an operation in flight ends it while it holds the group.
    pub(super) fn abandon(
        &self,
        mut backend: MutexGuard<'_, Option<ActiveBackend>>,
        (op, bytes): (Operation, u64),
        trouble: OperationFailure,
    ) -> CollectiveError {
        *backend = None;
        drop(backend);
        CollectiveError { bytes, ..self.fail(op, trouble) }
    }

    /// Takes the place of an operation in the order of the group, after all that were started.
    pub(super) fn take_turn(&self) -> MutexGuard<'_, ()> {
        let turn = lock(&self.turn);
        self.group.inner.executor.run(|_| ());
        turn
    }

    /// Counts an operation that was enqueued.
    pub(super) fn count(&self, call: OperationCall, dtype: Dtype) {
        let (rank, world) = (self.group.rank(), self.group.world_size());
        self.traffic.record(call.op, call.received_bytes(dtype.bytes(), rank, world));
    }

    /// Runs `work` with the kernels on gradients, which are compiled when they are first needed.
    pub(super) fn with_kernels<V>(
        &self,
        work: impl FnOnce(&mut KernelCache) -> Result<V, OperationFailure>,
    ) -> Result<V, OperationFailure> {
        let mut kernels = lock(&self.kernels);
        if kernels.is_none() {
            let opened = KernelCache::open(self.stream.context());
            let opened = opened.map_err(|error| Cause::Backend(error.to_string()));
            *kernels = Some(opened.map_err(OperationFailure::Cause)?);
        }
        work(kernels.as_mut().expect("opened above"))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<ActiveBackend>> {
        lock(&self.backend)
    }
}

impl Drop for DeviceConnection {
    fn drop(&mut self) {
        // Operations in flight use the backend. Each of them has a deadline.
        drop(self.take_turn());
        let _ = self.stream.context().bind_to_thread();
        let mut backend = lock(&self.backend);
        if let Some(ActiveBackend::Nccl(Nccl { communicator: mut nccl, .. })) = backend.take() {
            let until = clock::now() + FINALIZE_MAX;
            let deadline =
                DeviceDeadline { until, ..DeviceDeadline::new(&self.group, &self.stream) };
            let is_finalized =
                nccl.start_finalize().is_ok() && deadline.wait_enqueued(&nccl).is_ok();
            if is_finalized {
                nccl.destroy();
            }
        }
    }
}

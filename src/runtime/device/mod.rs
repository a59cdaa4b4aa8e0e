//! Collectives on GPU memory.
//!
//! A [`DeviceGroup`] is based on a [`Group`]. The group connects the ranks, compares their calls before an
//! operation starts on the device, and reports late and lost ranks. NCCL moves the data, or the host if NCCL
//! cannot be used. Memory is allocated by `cudarc`, so it can be shared with other crates.
//!
//! ```no_run
//! use remuda::runtime::device::{DeviceBackend, DeviceGroup, open_device};
//! use remuda::runtime::{Error, Group, ReduceOp};
//!
//! fn main() -> Result<(), Error> {
//!     let group = Group::from_env()?;
//!     let context = open_device(group.local_rank())?;
//!     let devices = DeviceGroup::new(&group, &context, DeviceBackend::Auto)?;
//!     let zeros = context.default_stream().alloc_zeros::<f32>(1 << 20);
//!     let mut gradients = zeros.map_err(|error| Error::Device(format!("{error:?}")))?;
//!     devices.all_reduce(&mut gradients, ReduceOp::Avg)?;
//!     Ok(())
//! }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `choice` | selection of NCCL or the host |
//! | `connect` | connection of the devices of a group |
//! | `nccl` | operations through NCCL, in its order or in the canonical one |
//! | `canonical`, `kernel`, `ffi_fold` | reductions in the canonical order: plan, CUDA source, execution |
//! | `registered` | memory that is registered with NCCL |
//! | `pipeline`, `staged` | operations through host memory, in chunks that overlap |
//! | `ffi` | CUDA driver |

mod canonical;
mod choice;
mod connect;
mod ffi;
mod ffi_fold;
mod kernel;
mod nccl;
mod pipeline;
mod registered;
mod staged;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use cudarc;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DriverError,
    ValidAsZeroBits,
};

use self::canonical::Goal;
pub use self::choice::DeviceBackend;
pub use self::ffi::{device_count, open_device};
pub use self::kernel::FoldKernel;
use self::nccl::Nccl;
pub use self::registered::RegisteredSlice;
use self::staged::Staged;
use crate::base::clock;
use crate::runtime::element::{Element, ReduceOp, ReduceOrder};
use crate::runtime::engine::OperationCall;
use crate::runtime::error::{Cause, CollectiveError, Operation, Result};
use crate::runtime::group::Group;
use crate::runtime::nccl::{CommProgress, Communicator, NcclError, NcclLibrary, PeerSlice, ras};

/// Number type for collectives on devices.
pub trait DeviceElement: Element + DeviceRepr + ValidAsZeroBits {}

impl<T: Element + DeviceRepr + ValidAsZeroBits> DeviceElement for T {}

/// A set of ranks whose data is on GPUs; every rank holds its own handle.
///
/// The rules of [`Group`] apply: all ranks call the same operations in the same order, a failure is an
/// error on every rank, and every operation after it fails. Operations block until they have ended.
pub struct DeviceGroup {
    group: Group,
    stream: Arc<CudaStream>,
    /// Backend that moves the data; `None` once an operation has failed.
    backend: Mutex<Option<ActiveBackend>>,
    obstacle: Option<String>,
}

/// Connected backend.
enum ActiveBackend {
    Nccl(Nccl),
    Staged(Staged),
}

/// Reason why an operation failed.
pub(super) enum OperationFailure {
    Cause(Cause),
    Collective(CollectiveError),
}

impl From<DriverError> for OperationFailure {
    fn from(error: DriverError) -> Self {
        Self::Cause(Cause::Backend(format!(
            "the GPU reported an error: {}",
            ffi::driver_message(error)
        )))
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

/// Time limit for the other ranks to finalize a communicator when it is dropped.
const FINALIZE_MAX: Duration = Duration::from_secs(10);
/// Time limit for the answer of NCCL's RAS service.
const RAS_LIMIT: Duration = Duration::from_secs(5);

impl DeviceGroup {
    /// Connects the devices of all ranks; every rank of `group` calls it with its own device.
    pub fn new(group: &Group, context: &Arc<CudaContext>, backend: DeviceBackend) -> Result<Self> {
        connect::connect(group, context, backend)
    }

    /// Returns the group of the ranks.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the stream of the operations.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Returns the name of the backend, `nccl` or `staged`.
    pub fn backend(&self) -> &'static str {
        match &*self.lock() {
            Some(ActiveBackend::Nccl(_)) => "nccl",
            Some(ActiveBackend::Staged(_)) => "staged",
            None => "none",
        }
    }

    /// Returns the NCCL library, if it is used.
    pub fn library(&self) -> Option<Arc<NcclLibrary>> {
        match &*self.lock() {
            Some(ActiveBackend::Nccl(nccl)) => Some(nccl.communicator.library().clone()),
            Some(ActiveBackend::Staged(_)) | None => None,
        }
    }

    /// Returns why NCCL is not used, unless the caller chose another backend.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// Switches to reductions in the order of the canonical [tree](crate::runtime::tree): results have the
    /// bits of a [`Group`] on CPUs, for every placement. All ranks must call it.
    ///
    /// The staged backend always uses this order. With NCCL, [`Self::all_reduce`], [`Self::reduce`] and
    /// [`Self::reduce_scatter`] become an exchange of slices, a reduction on the device (a [`FoldKernel`],
    /// which NVRTC compiles at its first use), and a second exchange. That transfers as many bytes as a
    /// ring and needs scratch memory of the reduced size, at most 128 MiB.
    ///
    /// # Errors
    /// If a rank has no NVRTC.
    pub fn in_canonical_order(self) -> Result<Self> {
        connect::enable_canonical_order(&self)?;
        Ok(self)
    }

    /// Registers memory that many operations will use with NCCL, which can then avoid copies. The staged
    /// backend and NCCL before 2.19 ignore it. All ranks must call it, with slices of equal length.
    pub fn register<T: DeviceElement>(
        &self,
        slice: CudaSlice<T>,
    ) -> Result<RegisteredSlice<'_, T>> {
        RegisteredSlice::new(self, slice)
    }

    /// Returns the order of reductions; [`ReduceOrder::Any`] is NCCL's own order.
    pub fn order(&self) -> ReduceOrder {
        match &*self.lock() {
            Some(ActiveBackend::Nccl(nccl)) => nccl.order(),
            Some(ActiveBackend::Staged(_)) | None => ReduceOrder::Canonical,
        }
    }

    /// See [`Group::all_reduce`]. NCCL sums in its own order unless
    /// [`Self::in_canonical_order`] was called.
    pub fn all_reduce<T: DeviceElement>(
        &self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        let call =
            OperationCall { reduce: op, ..OperationCall::new(Operation::AllReduce, data.len()) };
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => nccl.reduce(data, op, Goal::All, deadline),
            ActiveBackend::Staged(staged) => staged.all_reduce(&self.group, data, op, deadline),
        })
    }

    /// See [`Group::reduce`].
    pub fn reduce<T: DeviceElement>(
        &self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.group.check_rank(Operation::Reduce, root)?;
        let call = OperationCall::new(Operation::Reduce, data.len());
        self.run::<T>(
            OperationCall { reduce: op, root: Some(root), ..call },
            |backend, deadline| match backend {
                ActiveBackend::Nccl(nccl) => nccl.reduce(data, op, Goal::Root(root), deadline),
                ActiveBackend::Staged(staged) => {
                    staged.reduce(&self.group, data, op, root, deadline)
                }
            },
        )
    }

    /// See [`Group::broadcast`].
    pub fn broadcast<T: DeviceElement>(
        &self,
        data: &mut impl DevicePtrMut<T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.group.check_rank(Operation::Broadcast, root)?;
        let call = OperationCall {
            root: Some(root),
            ..OperationCall::new(Operation::Broadcast, data.len())
        };
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.broadcast(data, root, &self.stream)?)
            }
            ActiveBackend::Staged(staged) => staged.broadcast(&self.group, data, root, deadline),
        })
    }

    /// See [`Group::all_gather`].
    pub fn all_gather<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
    ) -> Result<(), CollectiveError> {
        self.group.check_parts(Operation::AllGather, output.len(), input.len())?;
        let call = OperationCall::new(Operation::AllGather, input.len());
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.all_gather(input, output, &self.stream)?)
            }
            ActiveBackend::Staged(staged) => {
                staged.all_gather(&self.group, input, output, deadline)
            }
        })
    }

    /// See [`Group::reduce_scatter`].
    pub fn reduce_scatter<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.group.check_parts(Operation::ReduceScatter, input.len(), output.len())?;
        let call = OperationCall {
            reduce: op,
            ..OperationCall::new(Operation::ReduceScatter, input.len())
        };
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => nccl.reduce_scatter(input, output, op, deadline),
            ActiveBackend::Staged(staged) => {
                staged.reduce_scatter(&self.group, input, output, op, deadline)
            }
        })
    }

    /// See [`Group::gather`]; `output` is ignored on all ranks except the root.
    pub fn gather<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.group.check_root_parts(Operation::Gather, output.len(), input.len(), root)?;
        let call = OperationCall {
            root: Some(root),
            ..OperationCall::new(Operation::Gather, input.len())
        };
        let parts = if root == self.group.rank() { self.parts(input.len()) } else { Vec::new() };
        let sends = [(root, 0..input.len())];
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.exchange((input, &sends), (output, &parts), &self.stream)?)
            }
            ActiveBackend::Staged(staged) => {
                staged.gather(&self.group, input, output, root, deadline)
            }
        })
    }

    /// See [`Group::scatter`]; `input` is ignored on all ranks except the root.
    pub fn scatter<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.group.check_root_parts(Operation::Scatter, input.len(), output.len(), root)?;
        let call = OperationCall {
            root: Some(root),
            ..OperationCall::new(Operation::Scatter, output.len())
        };
        let parts = if root == self.group.rank() { self.parts(output.len()) } else { Vec::new() };
        let recvs = [(root, 0..output.len())];
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.exchange((input, &parts), (output, &recvs), &self.stream)?)
            }
            ActiveBackend::Staged(staged) => {
                staged.scatter(&self.group, input, output, root, deadline)
            }
        })
    }

    /// See [`Group::all_to_all`].
    pub fn all_to_all<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
    ) -> Result<(), CollectiveError> {
        let part = input.len() / self.group.world_size();
        self.group.check_parts(Operation::AllToAll, input.len(), part)?;
        self.group.check_parts(Operation::AllToAll, output.len(), part)?;
        let call = OperationCall::new(Operation::AllToAll, input.len());
        let parts = self.parts(part);
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.exchange((input, &parts), (output, &parts), &self.stream)?)
            }
            ActiveBackend::Staged(staged) => {
                staged.all_to_all(&self.group, input, output, deadline)
            }
        })
    }

    /// See [`Group::send_recv`]: sends `input` to rank `to` and receives `output` from rank `from`. Here,
    /// every rank of the group must call it at the same time.
    pub fn send_recv<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        to: usize,
        output: &mut impl DevicePtrMut<T>,
        from: usize,
    ) -> Result<(), CollectiveError> {
        self.group.check_rank(Operation::SendRecv, to)?;
        self.group.check_rank(Operation::SendRecv, from)?;
        let (sends, recvs) = ([(to, 0..input.len())], [(from, 0..output.len())]);
        let call = OperationCall::new(Operation::SendRecv, input.len().max(output.len()));
        self.run::<T>(call, |backend, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.exchange((input, &sends), (output, &recvs), &self.stream)?)
            }
            ActiveBackend::Staged(staged) => {
                staged.send_recv(&self.group, (input, to), (output, from), deadline)
            }
        })
    }

    /// Waits until every rank has called it.
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.group.barrier()
    }

    /// See [`Group::abort`].
    pub fn abort(&self, reason: &str) {
        self.group.abort(reason);
    }

    /// See [`Group::split`]; all ranks of this group must call it.
    pub fn split(&self, color: impl Into<Option<usize>>, key: usize) -> Result<Option<Self>> {
        connect::split(self, color.into(), key)
    }

    /// One part of `len` elements for every rank.
    fn parts(&self, len: usize) -> Vec<PeerSlice> {
        (0..self.group.world_size()).map(|rank| (rank, rank * len..(rank + 1) * len)).collect()
    }

    /// Compares the calls of all ranks and performs the operation. A failure aborts the group.
    fn run<T: DeviceElement>(
        &self,
        call: OperationCall,
        operation: impl FnOnce(&mut ActiveBackend, &DeviceDeadline) -> Result<(), OperationFailure>,
    ) -> Result<(), CollectiveError> {
        let mut backend = self.lock();
        self.group.run_blocking(|engine| engine.sync_calls::<T>(call))?;
        self.perform(backend.as_mut(), operation).map_err(|trouble| {
            *backend = None;
            let bytes = (call.count * size_of::<T>()) as u64;
            CollectiveError { bytes, ..self.fail(call.op, trouble) }
        })
    }

    /// Submits an operation to the device, and waits for it.
    fn perform(
        &self,
        backend: Option<&mut ActiveBackend>,
        operation: impl FnOnce(&mut ActiveBackend, &DeviceDeadline) -> Result<(), OperationFailure>,
    ) -> Result<(), OperationFailure> {
        let backend = backend.ok_or_else(already_failed)?;
        let deadline = DeviceDeadline::new(&self.group, &self.stream);
        self.stream.context().bind_to_thread()?;
        operation(backend, &deadline)?;
        match backend {
            ActiveBackend::Nccl(nccl) => deadline.wait_complete(&nccl.communicator),
            ActiveBackend::Staged(_) => Ok(()),
        }
    }

    /// Aborts the group for all ranks after a failure; returns the error.
    fn fail(&self, op: Operation, trouble: OperationFailure) -> CollectiveError {
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ActiveBackend>> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceGroup {
    fn drop(&mut self) {
        let _ = self.stream.context().bind_to_thread();
        let backend = self.backend.get_mut().unwrap_or_else(PoisonError::into_inner);
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

fn already_failed() -> OperationFailure {
    OperationFailure::Cause(Cause::Backend(
        "an earlier operation of this device group failed".to_owned(),
    ))
}

/// Waits for device operations until they complete, a rank is lost or the deadline passes.
pub(super) struct DeviceDeadline<'a> {
    group: &'a Group,
    stream: &'a Arc<CudaStream>,
    until: Instant,
}

impl<'a> DeviceDeadline<'a> {
    fn new(group: &'a Group, stream: &'a Arc<CudaStream>) -> Self {
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
        let mut polls = 0u32;
        loop {
            if is_done()? {
                return Ok(());
            }
            if let Some(cause) = self.group.abort_cause() {
                return Err(OperationFailure::Cause(cause));
            }
            if self.until <= clock::now() {
                return Err(OperationFailure::Cause(Cause::Backend(timeout_message())));
            }
            polls += 1;
            pause(polls);
        }
    }

    /// Waits until NCCL has enqueued the operation.
    fn wait_enqueued(&self, nccl: &Communicator) -> Result<(), OperationFailure> {
        self.wait(&mut || Ok(nccl.progress()? == CommProgress::Done), nccl_timeout_message)
    }

    /// Waits until the operations that NCCL has enqueued on the stream are complete.
    fn wait_complete(&self, nccl: &Communicator) -> Result<(), OperationFailure> {
        self.wait_enqueued(nccl)?;
        let event = self.stream.record_event(None)?;
        let mut is_done = || {
            nccl.progress()?;
            Ok(event.try_is_complete()?)
        };
        self.wait(&mut is_done, nccl_timeout_message)
    }
}

/// Pause between two polls: none at first, because small operations take microseconds, then longer,
/// because large ones should not occupy a processor.
fn pause(polls: u32) {
    const SPINS: u32 = 200;
    const YIELDS: u32 = 2000;
    const SLEEP: Duration = Duration::from_micros(50);
    match polls {
        ..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        YIELDS.. => std::thread::sleep(SLEEP),
    }
}

fn nccl_timeout_message() -> String {
    let status = match ras::status(RAS_LIMIT) {
        Ok(status) => format!("; status of its RAS service:\n{status}"),
        Err(error) => format!("; its RAS service cannot be queried: {error}"),
    };
    format!("NCCL did not complete the operation within the timeout of the group{status}")
}

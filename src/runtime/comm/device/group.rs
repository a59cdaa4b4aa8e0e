//! The group of devices and its operations.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream};

use crate::base::{clock, lock};
use crate::cuda::nccl::NcclLibrary;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::core::pending::PendingOperation;
use crate::runtime::comm::core::traffic::Traffic;
use crate::runtime::comm::device::active::{ActiveBackend, BackendOperation};
use crate::runtime::comm::device::connect::{connect, enable_canonical_order, split};
use crate::runtime::comm::device::connection::DeviceConnection;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::ffi_work::{Comparison, DeviceWork, Watch};
use crate::runtime::comm::device::pending::is_complete;
use crate::runtime::comm::device::registered::RegisteredSlice;
use crate::runtime::comm::device::select::DeviceBackend;
use crate::runtime::comm::device::wait::{
    DeviceDeadline, OperationFailure, already_failed, nccl_timeout_message,
};
use crate::runtime::comm::executor::OperationEvent;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::dtype::element::{Dtype, ReduceOrder};
use crate::runtime::error::Result;

/// By how much the submission of an operation may outlast its deadline: the thread that compares the calls knows which
/// ranks are late, and ends it.
const SUBMISSION_GRACE: Duration = Duration::from_secs(1);

/// A set of ranks whose data is on GPUs; every rank holds its own handle, which can be cloned.
///
/// The rules of [`Group`] apply: all ranks call the same operations in the same order, a failure is an
/// error on every rank, and every operation after it fails. The methods block until their operation has ended;
/// operations of [`Collectives`](crate::runtime::Collectives) are in flight together.
#[derive(Clone)]
pub struct DeviceGroup {
    pub(super) connection: Arc<DeviceConnection>,
    /// Where the next operation leaves its handle, if it is started; see [`Self::start`].
    pub(super) started: Option<Arc<Mutex<Option<DeviceWork>>>>,
}

impl DeviceGroup {
    /// Connects the devices of all ranks; every rank of `group` calls it with its own device.
    pub fn new(group: &Group, context: &Arc<CudaContext>, backend: DeviceBackend) -> Result<Self> {
        Ok(Self::of(connect(group, context, backend)?))
    }

    fn of(connection: DeviceConnection) -> Self {
        Self { connection: Arc::new(connection), started: None }
    }

    /// Returns the group of the ranks.
    pub fn group(&self) -> &Group {
        &self.connection.group
    }

    /// Returns the stream of the operations.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.connection.stream
    }

    /// Returns the operations on device memory so far. The operations of the host's group with which the staged
    /// backend moves the data are counted there, in [`Group::traffic`].
    pub fn traffic(&self) -> Traffic {
        self.connection.traffic.read()
    }

    /// Returns the name of the backend, `nccl` or `staged`.
    pub fn backend(&self) -> &'static str {
        match &*self.connection.lock() {
            Some(ActiveBackend::Nccl(_)) => "nccl",
            Some(ActiveBackend::Staged(_)) => "staged",
            None => "none",
        }
    }

    pub(super) fn is_nccl(&self) -> bool {
        matches!(&*self.connection.lock(), Some(ActiveBackend::Nccl(_)))
    }

    /// Returns the NCCL library, if it is used.
    pub fn library(&self) -> Option<Arc<NcclLibrary>> {
        match &*self.connection.lock() {
            Some(ActiveBackend::Nccl(nccl)) => Some(nccl.communicator.library().clone()),
            Some(ActiveBackend::Staged(_)) | None => None,
        }
    }

    /// Returns why NCCL is not used, unless the caller chose another backend.
    pub fn obstacle(&self) -> Option<&str> {
        self.connection.obstacle.as_deref()
    }

    /// Returns why the driver has not pinned the host memory of the staged backend, so that copies are slow.
    pub fn pinning_refusal(&self) -> Option<String> {
        match &*self.connection.lock() {
            Some(ActiveBackend::Staged(staged)) => staged.pinning_refusal().map(str::to_owned),
            Some(ActiveBackend::Nccl(_)) | None => None,
        }
    }

    /// Switches to reductions in the order of the canonical [tree](crate::runtime::schedule::tree): results have the
    /// bits of a [`Group`] on CPUs, for every placement. All ranks must call it.
    ///
    /// The staged backend always uses this order. With NCCL, [`Self::all_reduce`], [`Self::reduce`] and
    /// [`Self::reduce_scatter`] become an exchange of slices, a reduction on the device (a
    /// [`FoldKernel`](super::FoldKernel), which NVRTC compiles at its first use), and a second exchange. That
    /// transfers as many bytes as a ring and needs scratch memory of the reduced size, at most 128 MiB.
    ///
    /// # Errors
    /// If a rank has no NVRTC.
    pub fn in_canonical_order(self) -> Result<Self> {
        enable_canonical_order(&self.connection)?;
        Ok(self)
    }

    /// Registers memory that many operations will use with NCCL, which can then avoid copies. The staged
    /// backend and NCCL before 2.19 ignore it. All ranks must call it, with slices of equal length.
    pub fn register<T: DeviceElement>(
        &self,
        slice: CudaSlice<T>,
    ) -> Result<RegisteredSlice<'_, T>> {
        RegisteredSlice::new(&self.connection, slice)
    }

    /// The same handle over memory that is not registered with NCCL.
    #[cfg(feature = "cli")]
    pub(crate) fn unregistered<T>(&self, slice: CudaSlice<T>) -> RegisteredSlice<'_, T> {
        RegisteredSlice::unregistered(&self.connection, slice)
    }

    /// Returns the order of reductions; [`ReduceOrder::Any`] is NCCL's own order.
    pub fn order(&self) -> ReduceOrder {
        match &*self.connection.lock() {
            Some(ActiveBackend::Nccl(nccl)) => nccl.order(),
            Some(ActiveBackend::Staged(_)) | None => ReduceOrder::Canonical,
        }
    }

    /// Waits until every rank has called it.
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.connection.group.barrier()
    }

    /// See [`Group::abort`].
    pub fn abort(&self, reason: &str) {
        self.connection.group.abort(reason);
    }

    /// See [`Group::split`]; all ranks of this group must call it.
    pub fn split(&self, color: impl Into<Option<usize>>, key: usize) -> Result<Option<Self>> {
        let part = split(&self.connection, color.into(), key)?;
        Ok(part.map(Self::of))
    }

    /// Performs an operation that ranks compare in a way of its own, or starts it.
    pub(super) fn run_with(
        &self,
        call: OperationCall,
        dtype: Dtype,
        compare: Box<Comparison>,
        operation: &mut BackendOperation<'_>,
    ) -> Result<(), CollectiveError> {
        match &self.started {
            Some(started) if self.is_nccl() => {
                let work = self.start_compared(call, dtype, compare, operation)?;
                *lock(started) = Some(work);
                Ok(())
            }
            _ => self.run_compared(call, dtype, compare, operation),
        }
    }

    fn run_compared(
        &self,
        call: OperationCall,
        dtype: Dtype,
        compare: Box<Comparison>,
        operation: &mut BackendOperation<'_>,
    ) -> Result<(), CollectiveError> {
        let _turn = self.connection.take_turn();
        let mut backend = self.connection.lock();
        let bytes = (call.count * dtype.bytes()) as u64;
        if let Err(trouble) = self.load_kernels(call, dtype, &mut backend) {
            return Err(self.connection.abandon(backend, (call.op, bytes), trouble));
        }
        self.connection.group.run_blocking(|host| host.run_of(call, dtype.bytes(), compare))?;
        let deadline = DeviceDeadline::new(&self.connection.group, &self.connection.stream);
        let ended = self.enqueue(backend.as_mut(), &deadline, operation).and_then(|event| {
            let Some(event) = event else { return Ok(()) };
            deadline.wait(&mut || is_complete(&event, backend.as_ref()), nccl_timeout_message)
        });
        ended
            .map(|()| self.connection.count(call, dtype))
            .map_err(|trouble| self.connection.abandon(backend, (call.op, bytes), trouble))
    }

    /// Submits an operation to NCCL and has it watched.
    fn start_compared(
        &self,
        call: OperationCall,
        dtype: Dtype,
        compare: Box<Comparison>,
        operation: &mut BackendOperation<'_>,
    ) -> Result<DeviceWork, CollectiveError> {
        let (connection, group) = (&self.connection, self.group());
        let bytes = (call.count * dtype.bytes()) as u64;
        let _turn = lock(&connection.turn);
        let mut backend = connection.lock();
        if let Err(trouble) = self.load_kernels(call, dtype, &mut backend) {
            return Err(connection.abandon(backend, (call.op, bytes), trouble));
        }
        drop(backend);
        let (submitted, end) = mpsc::sync_channel(1);
        let context = connection.stream.context().clone();
        let watch = Watch { context, backend: connection.backend.clone(), end };
        let watched = move |host: &mut HostBackend| watch.run(host, call, dtype, compare);
        let mut pending = group.start_on_thread(call.op, watched, |_: OperationEvent| {});

        let mut deadline = DeviceDeadline::new(group, &connection.stream);
        deadline.until = clock::after(deadline.until, SUBMISSION_GRACE);
        let mut backend = connection.lock();
        let trouble = match self.enqueue(backend.as_mut(), &deadline, operation) {
            Ok(event) => {
                let end = event.map(Arc::new);
                // Sending fails if the ranks have found a difference meanwhile.
                let _ = submitted.send(end.clone());
                connection.count(call, dtype);
                return Ok(DeviceWork::new(pending, end, group));
            }
            Err(trouble) => trouble,
        };
        // The watch knows better why the group was aborted meanwhile.
        let is_consequence = group.abort_cause().is_some();
        let error = connection.abandon(backend, (call.op, bytes), trouble);
        drop(submitted);
        pending.poll(Duration::MAX);
        Err(match pending.take() {
            Some(Err(cause)) if is_consequence => {
                group.report(&cause);
                cause
            }
            _ => error,
        })
    }

    /// Loads the kernels of a call, which a device does only when it is idle: before the ranks meet for the call.
    pub(super) fn load_kernels(
        &self,
        call: OperationCall,
        dtype: Dtype,
        backend: &mut Option<ActiveBackend>,
    ) -> Result<(), OperationFailure> {
        let reduces =
            matches!(call.op, Operation::AllReduce | Operation::Reduce | Operation::ReduceScatter);
        match backend {
            Some(ActiveBackend::Nccl(nccl)) if reduces => {
                self.connection.stream.context().bind_to_thread()?;
                nccl.prepare(call.reduce, dtype, self.connection.group.world_size())
            }
            _ => Ok(()),
        }
    }

    /// Enqueues an operation on the stream. Returns the event of its end; `None` if it has ended.
    pub(super) fn enqueue(
        &self,
        backend: Option<&mut ActiveBackend>,
        deadline: &DeviceDeadline<'_>,
        operation: impl FnOnce(&mut ActiveBackend, &DeviceDeadline) -> Result<(), OperationFailure>,
    ) -> Result<Option<CudaEvent>, OperationFailure> {
        let backend = backend.ok_or_else(already_failed)?;
        self.connection.stream.context().bind_to_thread()?;
        operation(backend, deadline)?;
        let ActiveBackend::Nccl(nccl) = backend else { return Ok(None) };
        deadline.wait_enqueued(&nccl.communicator)?;
        Ok(Some(self.connection.stream.record_event(None)?))
    }
}

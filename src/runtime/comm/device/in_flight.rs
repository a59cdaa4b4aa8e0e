//! Operations of a group of devices that are in flight together.
//!
//! NCCL runs them in the group's stream, in the order of their submission; the host does not wait, except
//! while NCCL connects ranks for the first operation of a kind. The staged backend needs the host, so that
//! its operations have ended when they are submitted.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use cudarc::driver::CudaEvent;

use crate::runtime::comm::collectives::{Collectives, Plan, StepCheck};
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::{DividedReduction, Operation, OperationCall};
use crate::runtime::comm::core::traffic::Traffic;
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::group::DeviceGroup;
use crate::runtime::comm::device::memory::{DeviceBuffer, LentDevice};
use crate::runtime::comm::device::operand::{read, written};
use crate::runtime::comm::device::pending::PendingDevice;
use crate::runtime::comm::device::pieces::reduce_scatter_of_pieces;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::comm::executor::{OperationEvent, PendingOutcome};
use crate::runtime::comm::group::Group;
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Dtype, ReduceOp};
use crate::runtime::error::Result;
use crate::runtime::schedule::device_slices::Goal;
use crate::runtime::schedule::tree::Lanes;

/// An operation to submit, on memory `M`.
struct Submission<M, F> {
    call: OperationCall,
    memory: M,
    on_event: F,
}

/// Event of an operation that nothing follows.
fn ignore(_: OperationEvent) {}

impl DeviceGroup {
    /// Submits an operation whose arguments were checked.
    fn submit<T, M, F>(
        &self,
        checked: Result<(), CollectiveError>,
        Submission { call, mut memory, on_event }: Submission<M, F>,
        operation: impl FnOnce(
            &mut ActiveBackend,
            &mut M,
            &DeviceDeadline<'_>,
        ) -> Result<(), OperationFailure>,
    ) -> Work<M>
    where
        T: DeviceElement,
        M: Send + 'static,
        F: Fn(OperationEvent) + Send + 'static,
    {
        let group = self.group().clone();
        let deadline = DeviceDeadline::new(&group, self.stream());
        let (op, bytes) = (call.op, (call.count * size_of::<T>()) as u64);
        let submitted = checked.and_then(|()| {
            on_event(OperationEvent::Started);
            self.try_submit((op, bytes), &deadline, |backend| {
                operation(backend, &mut memory, &deadline)
            })
        });
        let submitted = submitted.inspect(|_| self.connection.count(call, T::DTYPE));
        let (until, memory) = (deadline.until, Arc::new(Mutex::new(Some(memory))));
        let outcome = match submitted {
            Ok(Some(event)) => {
                let connection = self.connection.clone();
                let pending =
                    PendingDevice { connection, op, bytes, event, until, on_event, outcome: None };
                return Work::new(pending, memory, group);
            }
            Ok(None) => {
                on_event(OperationEvent::Done);
                Ok(())
            }
            Err(error) => Err(error),
        };
        Work::new(PendingOutcome::ready(outcome), memory, group)
    }

    /// Enqueues an operation. A failure aborts the group.
    fn try_submit(
        &self,
        (op, bytes): (Operation, u64),
        deadline: &DeviceDeadline<'_>,
        operation: impl FnOnce(&mut ActiveBackend) -> Result<(), OperationFailure>,
    ) -> Result<Option<CudaEvent>, CollectiveError> {
        let mut backend = self.connection.lock();
        let enqueued = self.enqueue(backend.as_mut(), deadline, |backend, _| operation(backend));
        enqueued.map_err(|trouble| self.connection.abandon(backend, (op, bytes), trouble))
    }

    /// Call of a reduction, how the backends execute it, and whether they can. The mean over the ranks is an
    /// operation of its own, which NCCL knows; other divisions follow a sum.
    pub(super) fn reduction<T: DeviceElement>(
        &self,
        op: Operation,
        count: usize,
        wanted: DividedReduction,
    ) -> (OperationCall, DividedReduction, Result<(), CollectiveError>) {
        let world = self.group().world_size() as u64;
        let reduction = match (wanted.op, wanted.divisor) {
            (ReduceOp::Sum, divisor) if divisor == world && 1 < world => {
                DividedReduction { op: ReduceOp::Avg, divisor: 1 }
            }
            _ => wanted,
        };
        let call = OperationCall { reduce: reduction.op, ..OperationCall::new(op, count) };
        // A sum of 16-bit numbers is rounded before a kernel can divide it.
        let is_narrow = matches!(T::DTYPE, Dtype::F16 | Dtype::Bf16);
        if reduction.divisor == 1 || !is_narrow {
            return (call, reduction, Ok(()));
        }
        let DividedReduction { op: reduce, divisor } = wanted;
        let problem = format!(
            "a group of devices divides sums of {} by the number of its ranks, {world}, not {reduce} by \
             {divisor}",
            T::DTYPE
        );
        (call, reduction, Err(self.group().bad_argument(op, problem)))
    }

    /// Divides a range of a reduction of NCCL, in the stream of the operations.
    fn divide<T: DeviceElement>(
        &self,
        data: &mut LentDevice<T>,
        range: Range<usize>,
        divisor: u64,
    ) -> Result<(), OperationFailure> {
        if divisor == 1 {
            return Ok(());
        }
        self.connection.with_kernels(|kernels| kernels.divide(data, range, divisor, self.stream()))
    }
}

impl AsRef<Group> for DeviceGroup {
    fn as_ref(&self) -> &Group {
        self.group()
    }
}

/// Memory belongs to the default stream of the device: operations begin after the work that this stream had
/// when their ranges were lent.
impl<T: DeviceElement> Collectives<T> for DeviceGroup {
    type Buffer = DeviceBuffer<T>;
    type Lent = LentDevice<T>;

    fn alloc_shared(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::zeros(&self.stream().context().default_stream(), len)
    }

    fn submit_all_reduce(
        &self,
        data: LentDevice<T>,
        reduction: DividedReduction,
        on_event: impl Fn(OperationEvent) + Send + 'static,
    ) -> Work<LentDevice<T>> {
        let elements = data.elements();
        let (call, reduction, checked) =
            self.reduction::<T>(Operation::AllReduce, elements, reduction);
        let submission = Submission { call, memory: data, on_event };
        self.submit::<T, _, _>(checked, submission, |backend, data, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                nccl.reduce(&mut written(data), reduction.op, Goal::All, deadline)?;
                self.divide(data, 0..elements, reduction.divisor)
            }
            ActiveBackend::Staged(staged) => {
                staged.all_reduce(&mut written(data), reduction, deadline)
            }
        })
    }

    fn submit_reduce_scatter(
        &self,
        input: LentDevice<T>,
        output: LentDevice<T>,
        reduction: DividedReduction,
    ) -> Work<(LentDevice<T>, LentDevice<T>)> {
        let (op, elements) = (Operation::ReduceScatter, input.elements());
        let (call, reduction, checked) = self.reduction::<T>(op, elements, reduction);
        let part = output.elements();
        let checked = checked.and_then(|()| self.group().check_parts(op, elements, part));
        let submission = Submission { call, memory: (input, output), on_event: ignore };
        self.submit::<T, _, _>(checked, submission, |backend, (input, output), deadline| {
            match backend {
                ActiveBackend::Nccl(nccl) => {
                    let (from, to) = (&mut read(input), &mut written(output));
                    nccl.reduce_scatter(from, to, reduction.op, deadline)?;
                    self.divide(output, 0..part, reduction.divisor)
                }
                ActiveBackend::Staged(staged) => staged.reduce_scatter(
                    &mut read(input),
                    &mut written(output),
                    reduction,
                    deadline,
                ),
            }
        })
    }

    fn submit_reduce_scatter_in_place(
        &self,
        data: LentDevice<T>,
        reduction: DividedReduction,
    ) -> Work<LentDevice<T>> {
        let (op, elements) = (Operation::ReduceScatter, data.elements());
        let (call, reduction, checked) = self.reduction::<T>(op, elements, reduction);
        let checked = checked.and_then(|()| self.group().check_divisible(op, elements));
        let submission = Submission { call, memory: data, on_event: ignore };
        self.submit::<T, _, _>(checked, submission, |backend, data, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                nccl.reduce_scatter_in_place(&mut written(data), reduction.op, deadline)?;
                let (rank, world) = deadline.ranks();
                let part = elements / world;
                self.divide(data, rank * part..(rank + 1) * part, reduction.divisor)
            }
            ActiveBackend::Staged(staged) => {
                staged.reduce_scatter_in_place(&mut written(data), reduction, deadline)
            }
        })
    }

    fn submit_reduce_scatter_of_pieces(
        &self,
        pieces: Vec<LentDevice<T>>,
        output: LentDevice<T>,
        lanes: usize,
        reduction: DividedReduction,
    ) -> Work<(Vec<LentDevice<T>>, LentDevice<T>)> {
        let lens: Vec<usize> = pieces.iter().map(LentDevice::elements).collect();
        let checked = self.group().check_pieces(&lens, output.elements(), lanes);
        let lanes = Lanes { ranks: self.group().world_size(), each: lanes };
        let received = match &checked {
            Ok(()) => (lanes.pieces().len() - pieces.len()) * output.elements(),
            Err(_) => 0,
        };
        let count = lanes.ranks * output.elements();
        let call = OperationCall::new(Operation::ReduceScatterOfPieces, count);
        let call = OperationCall { reduce: reduction.op, received, ..call };
        let submission = Submission { call, memory: (pieces, output), on_event: ignore };
        self.submit::<T, _, _>(checked, submission, |backend, (pieces, output), deadline| {
            reduce_scatter_of_pieces(backend, (pieces, output), (lanes, reduction), deadline)
        })
    }

    fn submit_all_gather(
        &self,
        input: LentDevice<T>,
        output: LentDevice<T>,
    ) -> Work<(LentDevice<T>, LentDevice<T>)> {
        let call = OperationCall::new(Operation::AllGather, input.elements());
        let checked = self.group().check_parts(call.op, output.elements(), input.elements());
        let submission = Submission { call, memory: (input, output), on_event: ignore };
        self.submit::<T, _, _>(checked, submission, |backend, (input, output), deadline| {
            match backend {
                ActiveBackend::Nccl(nccl) => {
                    nccl.all_gather(&mut read(input), &mut written(output), deadline)
                }
                ActiveBackend::Staged(staged) => {
                    staged.all_gather(&mut read(input), &mut written(output), deadline)
                }
            }
        })
    }

    fn submit_all_gather_in_place(&self, data: LentDevice<T>) -> Work<LentDevice<T>> {
        let elements = data.elements();
        let call = OperationCall::new(Operation::AllGather, elements / self.group().world_size());
        let checked = self.group().check_divisible(call.op, elements);
        let submission = Submission { call, memory: data, on_event: ignore };
        self.submit::<T, _, _>(checked, submission, |backend, data, deadline| match backend {
            ActiveBackend::Nccl(nccl) => nccl.all_gather_in_place(&mut written(data), deadline),
            ActiveBackend::Staged(staged) => {
                staged.all_gather_in_place(&mut written(data), deadline)
            }
        })
    }

    fn submit_broadcast(&self, data: LentDevice<T>, root: usize) -> Work<LentDevice<T>> {
        let call = OperationCall::new(Operation::Broadcast, data.elements());
        let call = OperationCall { root: Some(root), ..call };
        let checked = self.group().check_rank(call.op, root);
        let submission = Submission { call, memory: data, on_event: ignore };
        self.submit::<T, _, _>(checked, submission, move |backend, data, deadline| match backend {
            ActiveBackend::Nccl(nccl) => nccl.broadcast(&mut written(data), root, deadline),
            ActiveBackend::Staged(staged) => staged.broadcast(&mut written(data), root, deadline),
        })
    }

    fn traffic(&self) -> Traffic {
        DeviceGroup::traffic(self)
    }

    /// NCCL does not compare calls. The host's group, which moves the data of the staged backend, does.
    fn submit_step_check(&self, plan: &Plan) -> Option<StepCheck> {
        self.is_nccl().then(|| StepCheck::start(self.group(), plan))
    }
}

//! Operations of a group of devices that are in flight together.
//!
//! NCCL runs them in the group's stream, in the order of their submission; the host does not wait, except
//! while NCCL connects ranks for the first operation of a kind. The staged backend needs the host, so that
//! its operations have ended when they are submitted.

use std::sync::{Arc, Mutex};

use cudarc::driver::CudaEvent;

use crate::runtime::comm::collectives::{Collectives, Plan, StepCheck};
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{DividedReduction, Operation};
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::group::DeviceGroup;
use crate::runtime::comm::device::memory::{DeviceBuffer, LentDevice};
use crate::runtime::comm::device::pending::PendingDevice;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::comm::executor::{OperationEvent, PendingOutcome};
use crate::runtime::comm::group::Group;
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::ReduceOp;
use crate::runtime::error::Result;
use crate::runtime::schedule::slice_exchange::Goal;

/// An operation to submit, on memory `M`.
struct Submission<M, F> {
    op: Operation,
    /// Bytes of this rank's memory.
    bytes: u64,
    memory: M,
    on_event: F,
}

impl DeviceGroup {
    /// Submits an operation whose arguments were checked.
    fn submit<M, F>(
        &self,
        checked: Result<(), CollectiveError>,
        Submission { op, bytes, mut memory, on_event }: Submission<M, F>,
        operation: impl FnOnce(
            &mut ActiveBackend,
            &mut M,
            &DeviceDeadline<'_>,
        ) -> Result<(), OperationFailure>,
    ) -> Work<M>
    where
        M: Send + 'static,
        F: Fn(OperationEvent) + Send + 'static,
    {
        let group = self.group().clone();
        let deadline = DeviceDeadline::new(&group, self.stream());
        let submitted = checked.and_then(|()| {
            on_event(OperationEvent::Started);
            self.try_submit((op, bytes), &deadline, |backend| {
                operation(backend, &mut memory, &deadline)
            })
        });
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
        enqueued.map_err(|trouble| self.connection.abandon(&mut backend, (op, bytes), trouble))
    }

    /// The reduction as the backends know it.
    fn reduction(
        &self,
        op: Operation,
        DividedReduction { op: reduce, divisor }: DividedReduction,
    ) -> Result<ReduceOp, CollectiveError> {
        let world = self.group().world_size() as u64;
        match (reduce, divisor) {
            (_, 1) => Ok(reduce),
            (ReduceOp::Sum, divisor) if divisor == world => Ok(ReduceOp::Avg),
            _ => {
                let problem = format!(
                    "a group of devices divides sums by the number of its ranks, {world}, not {reduce} by \
                     {divisor}"
                );
                Err(self.group().rejected(op, Cause::Argument(problem)))
            }
        }
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
        let op = Operation::AllReduce;
        let reduction = self.reduction(op, reduction);
        let reduce = *reduction.as_ref().unwrap_or(&ReduceOp::Sum);
        let submission = Submission { op, bytes: data.bytes(), memory: data, on_event };
        self.submit(reduction.map(drop), submission, |backend, data, deadline| match backend {
            ActiveBackend::Nccl(nccl) => nccl.reduce(data, reduce, Goal::All, deadline),
            ActiveBackend::Staged(staged) => {
                staged.all_reduce(deadline.group, data, reduce, deadline)
            }
        })
    }

    fn submit_reduce_scatter(
        &self,
        input: LentDevice<T>,
        output: LentDevice<T>,
        reduction: DividedReduction,
    ) -> Work<(LentDevice<T>, LentDevice<T>)> {
        let op = Operation::ReduceScatter;
        let reduction = self.reduction(op, reduction);
        let reduce = *reduction.as_ref().unwrap_or(&ReduceOp::Sum);
        let checked = reduction
            .and_then(|_| self.group().check_parts(op, input.elements(), output.elements()));
        let bytes = input.bytes();
        let submission = Submission { op, bytes, memory: (input, output), on_event: |_| {} };
        self.submit(checked, submission, |backend, (input, output), deadline| match backend {
            ActiveBackend::Nccl(nccl) => nccl.reduce_scatter(input, output, reduce, deadline),
            ActiveBackend::Staged(staged) => {
                staged.reduce_scatter(deadline.group, input, output, reduce, deadline)
            }
        })
    }

    fn submit_all_gather(
        &self,
        input: LentDevice<T>,
        output: LentDevice<T>,
    ) -> Work<(LentDevice<T>, LentDevice<T>)> {
        let op = Operation::AllGather;
        let checked = self.group().check_parts(op, output.elements(), input.elements());
        let bytes = input.bytes();
        let submission = Submission { op, bytes, memory: (input, output), on_event: |_| {} };
        self.submit(checked, submission, |backend, (input, output), deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.all_gather(input, output, deadline.stream)?)
            }
            ActiveBackend::Staged(staged) => {
                staged.all_gather(deadline.group, input, output, deadline)
            }
        })
    }

    fn submit_broadcast(&self, data: LentDevice<T>, root: usize) -> Work<LentDevice<T>> {
        let op = Operation::Broadcast;
        let checked = self.group().check_rank(op, root);
        let submission = Submission { op, bytes: data.bytes(), memory: data, on_event: |_| {} };
        self.submit(checked, submission, |backend, data, deadline| match backend {
            ActiveBackend::Nccl(nccl) => {
                Ok(nccl.communicator.broadcast(data, root, deadline.stream)?)
            }
            ActiveBackend::Staged(staged) => staged.broadcast(deadline.group, data, root, deadline),
        })
    }

    /// NCCL does not compare calls. The host's group, which moves the data of the staged backend, does.
    fn submit_step_check(&self, plan: &Plan) -> Option<StepCheck> {
        let is_nccl = matches!(&*self.connection.lock(), Some(ActiveBackend::Nccl(_)));
        is_nccl.then(|| StepCheck::start(self.group(), plan))
    }
}

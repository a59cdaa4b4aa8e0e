//! Device operations through NCCL. NCCL reduces in its own order; for the canonical order, ranks exchange
//! slices and fold them on the device.

use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use crate::cuda::nccl::{BufferLease, Communicator};
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::ffi_fold::FoldExecutor;
use crate::runtime::comm::device::fold_kernel::FoldKernel;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::dtype::element::{ReduceOp, ReduceOrder};
use crate::runtime::schedule::device_slices::{Goal, ReductionRound, plan_rounds};

/// Bytes of scratch memory of a device for reductions in the canonical order.
const SCRATCH_BYTES: usize = 128 << 20;

/// NCCL backend of a device group.
pub(crate) struct Nccl {
    pub(crate) communicator: Communicator,
    /// Kernels for the canonical order; `None`: NCCL reduces in its own order.
    pub(crate) fold_executor: Option<FoldExecutor>,
}

impl Nccl {
    pub(crate) fn order(&self) -> ReduceOrder {
        if self.fold_executor.is_some() { ReduceOrder::Canonical } else { ReduceOrder::Any }
    }

    /// Loads what a reduction needs, before an operation is in flight.
    pub(crate) fn prepare<T: DeviceElement>(
        &mut self,
        op: ReduceOp,
        parts: usize,
    ) -> Result<(), OperationFailure> {
        match &mut self.fold_executor {
            Some(executor) => executor.load(FoldKernel { dtype: T::DTYPE, op, parts }),
            None => Ok(()),
        }
    }

    /// Reduces the data of all ranks; all of them or the root receive the result.
    pub(crate) fn reduce<T: DeviceElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        goal: Goal,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (stream, len) = (deadline.stream, data.len());
        let Some(executor) = &mut self.fold_executor else {
            let nccl = &mut self.communicator;
            let started = match goal {
                Goal::Root(root) => nccl.reduce(data, op.into(), root, stream),
                Goal::All | Goal::Parts => nccl.all_reduce(data, op.into(), stream),
            };
            return Ok(started?);
        };
        let data = BufferLease::to_write(data, stream);
        let mut fold = CanonicalReduction {
            nccl: &mut self.communicator,
            fold_executor: executor,
            op,
            deadline,
        };
        let ranks = deadline.ranks();
        plan_rounds(goal, ranks, len, SCRATCH_BYTES / size_of::<T>())
            .try_for_each(|turn| fold.run_round(&turn, &data, &data))
    }

    /// Reduces so that rank `r` receives part `r`.
    pub(crate) fn reduce_scatter<T: DeviceElement>(
        &mut self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (stream, len) = (deadline.stream, output.len());
        let Some(executor) = &mut self.fold_executor else {
            return Ok(self.communicator.reduce_scatter(input, output, op.into(), stream)?);
        };
        let (input, output) =
            (BufferLease::to_read(input, stream), BufferLease::to_write(output, stream));
        let mut fold = CanonicalReduction {
            nccl: &mut self.communicator,
            fold_executor: executor,
            op,
            deadline,
        };
        let ranks = deadline.ranks();
        plan_rounds(Goal::Parts, ranks, len, SCRATCH_BYTES / size_of::<T>())
            .try_for_each(|turn| fold.run_round(&turn, &input, &output))
    }

    /// Reduces so that part `r` of the data of rank `r` becomes that part of the reduction. Rounds are ranges of
    /// every part, so that no round reads what an earlier one has written.
    pub(crate) fn reduce_scatter_in_place<T: DeviceElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (stream, ranks @ (rank, world)) = (deadline.stream, deadline.ranks());
        let Some(executor) = &mut self.fold_executor else {
            let nccl = &mut self.communicator;
            return Ok(nccl.reduce_scatter_in_place(data, op.into(), ranks, stream)?);
        };
        let len = data.len() / world;
        let data = BufferLease::to_write(data, stream);
        let own_part = data.part(&(rank * len..(rank + 1) * len));
        let mut fold = CanonicalReduction {
            nccl: &mut self.communicator,
            fold_executor: executor,
            op,
            deadline,
        };
        plan_rounds(Goal::Parts, ranks, len, SCRATCH_BYTES / size_of::<T>())
            .try_for_each(|turn| fold.run_round(&turn, &data, &own_part))
    }

    /// Gathers part `r` of the data of every rank `r`.
    pub(crate) fn all_gather_in_place<T: DeviceElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let DeviceDeadline { stream, .. } = deadline;
        Ok(self.communicator.all_gather_in_place(data, deadline.ranks(), stream)?)
    }
}

/// A reduction in the canonical order.
struct CanonicalReduction<'a> {
    nccl: &'a mut Communicator,
    fold_executor: &'a mut FoldExecutor,
    op: ReduceOp,
    deadline: &'a DeviceDeadline<'a>,
}

impl CanonicalReduction<'_> {
    /// Enqueues one round on the stream.
    fn run_round<T: DeviceElement>(
        &mut self,
        turn: &ReductionRound,
        input: &BufferLease<'_, T>,
        output: &BufferLease<'_, T>,
    ) -> Result<(), OperationFailure> {
        let stream: &Arc<CudaStream> = self.deadline.stream;
        let (_, parts) = self.deadline.ranks();
        let kernel = FoldKernel { dtype: T::DTYPE, op: self.op, parts };
        {
            let mut scratch = self.fold_executor.scratch::<T>(turn.scratch(), stream)?;
            let scratch = BufferLease::to_write(&mut scratch, stream);
            self.nccl.exchange_leased((input, &turn.sends), (&scratch, &turn.recvs), stream)?;
        }
        self.deadline.wait_enqueued(self.nccl)?;
        self.fold_executor.fold::<T>(kernel, (turn.stride, turn.len), stream)?;
        let scratch = self.fold_executor.scratch::<T>(turn.scratch(), stream)?;
        let scratch = BufferLease::to_read(&scratch, stream);
        self.nccl.exchange_leased(
            (&scratch, &turn.result_sends),
            (output, &turn.result_recvs),
            stream,
        )?;
        self.deadline.wait_enqueued(self.nccl)
    }
}

//! Device operations through NCCL. NCCL reduces in its own order; for the canonical order, ranks exchange
//! slices and fold them on the device.

use std::ops::Range;

use crate::cuda::nccl::{BufferLease, Communicator};
use crate::runtime::comm::device::ffi_fold::FoldExecutor;
use crate::runtime::comm::device::fold_kernel::FoldKernel;
use crate::runtime::comm::device::operand::DeviceOperand;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::dtype::element::{Dtype, ReduceOp, ReduceOrder};
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
    pub(crate) fn prepare(
        &mut self,
        op: ReduceOp,
        dtype: Dtype,
        parts: usize,
    ) -> Result<(), OperationFailure> {
        match &mut self.fold_executor {
            Some(executor) => executor.load(FoldKernel { dtype, op, parts }),
            None => Ok(()),
        }
    }

    /// Reduces the data of all ranks; all of them or the root receive the result.
    pub(crate) fn reduce(
        &mut self,
        data: &mut dyn DeviceOperand,
        op: ReduceOp,
        goal: Goal,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (dtype, stream) = (data.dtype(), deadline.stream);
        let (nccl, data) = (&mut self.communicator, data.lease(stream));
        let Some(fold_executor) = &mut self.fold_executor else {
            let started = match goal {
                Goal::Root(root) => nccl.reduce(&data, op.into(), root, stream),
                Goal::All | Goal::Parts => nccl.all_reduce(&data, op.into(), stream),
            };
            return Ok(started?);
        };
        let kernel = fold_of(dtype, op, deadline);
        let mut reduction = CanonicalReduction { nccl, fold_executor, kernel, deadline };
        reduction.run(goal, data.len(), [&data, &data])
    }

    /// Replaces the data of all ranks by the root's.
    pub(crate) fn broadcast(
        &mut self,
        data: &mut dyn DeviceOperand,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let data = data.lease(deadline.stream);
        Ok(self.communicator.broadcast(&data, root, deadline.stream)?)
    }

    /// Gathers the `input` of all ranks.
    pub(crate) fn all_gather(
        &mut self,
        input: &mut dyn DeviceOperand,
        output: &mut dyn DeviceOperand,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (input, output) = (input.lease(deadline.stream), output.lease(deadline.stream));
        Ok(self.communicator.all_gather(&input, &output, deadline.stream)?)
    }

    /// Reduces so that rank `r` receives part `r`.
    pub(crate) fn reduce_scatter(
        &mut self,
        input: &mut dyn DeviceOperand,
        output: &mut dyn DeviceOperand,
        op: ReduceOp,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let kernel = fold_of(input.dtype(), op, deadline);
        let (input, output) = (input.lease(deadline.stream), output.lease(deadline.stream));
        self.reduce_scatter_leased(kernel, &input, &output, deadline)
    }

    /// Reduces so that part `r` of the data of rank `r` becomes that part of the reduction. Rounds are ranges of
    /// every part, so that no round reads what an earlier one has written.
    pub(crate) fn reduce_scatter_in_place(
        &mut self,
        data: &mut dyn DeviceOperand,
        op: ReduceOp,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let kernel = fold_of(data.dtype(), op, deadline);
        let data = data.lease(deadline.stream);
        let own_part = data.part(&own_range(data.len(), deadline));
        self.reduce_scatter_leased(kernel, &data, &own_part, deadline)
    }

    /// Gathers part `r` of the data of every rank `r`.
    pub(crate) fn all_gather_in_place(
        &mut self,
        data: &mut dyn DeviceOperand,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let data = data.lease(deadline.stream);
        let own_part = data.part(&own_range(data.len(), deadline));
        Ok(self.communicator.all_gather(&own_part, &data, deadline.stream)?)
    }

    fn reduce_scatter_leased(
        &mut self,
        kernel: FoldKernel,
        input: &BufferLease<'_>,
        output: &BufferLease<'_>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let nccl = &mut self.communicator;
        let Some(fold_executor) = &mut self.fold_executor else {
            return Ok(nccl.reduce_scatter(input, output, kernel.op.into(), deadline.stream)?);
        };
        let mut reduction = CanonicalReduction { nccl, fold_executor, kernel, deadline };
        reduction.run(Goal::Parts, output.len(), [input, output])
    }
}

/// A reduction in the canonical order.
struct CanonicalReduction<'a> {
    nccl: &'a mut Communicator,
    fold_executor: &'a mut FoldExecutor,
    kernel: FoldKernel,
    deadline: &'a DeviceDeadline<'a>,
}

impl CanonicalReduction<'_> {
    /// Enqueues the reduction of `len` elements, from input to output, on the stream.
    fn run(
        &mut self,
        goal: Goal,
        len: usize,
        operands: [&BufferLease<'_>; 2],
    ) -> Result<(), OperationFailure> {
        plan_rounds(goal, self.deadline.ranks(), len, SCRATCH_BYTES / self.kernel.dtype.bytes())
            .try_for_each(|turn| self.run_round(&turn, operands))
    }

    /// Enqueues one round.
    fn run_round(
        &mut self,
        turn: &ReductionRound,
        [input, output]: [&BufferLease<'_>; 2],
    ) -> Result<(), OperationFailure> {
        let (stream, dtype) = (self.deadline.stream, self.kernel.dtype);
        {
            let scratch = self.fold_executor.scratch(turn.scratch(), dtype, stream)?;
            self.nccl.exchange((input, &turn.sends), (&scratch, &turn.recvs), stream)?;
        }
        self.deadline.wait_enqueued(self.nccl)?;
        self.fold_executor.fold(self.kernel, (turn.stride, turn.len), stream)?;
        let scratch = self.fold_executor.scratch(turn.scratch(), dtype, stream)?;
        let (results, places) =
            ((&scratch, &turn.result_sends[..]), (output, &turn.result_recvs[..]));
        self.nccl.exchange(results, places, stream)?;
        self.deadline.wait_enqueued(self.nccl)
    }
}

/// Kernel of a reduction over all ranks.
fn fold_of(dtype: Dtype, op: ReduceOp, deadline: &DeviceDeadline<'_>) -> FoldKernel {
    let (_, parts) = deadline.ranks();
    FoldKernel { dtype, op, parts }
}

/// This rank's part of `len` elements.
fn own_range(len: usize, deadline: &DeviceDeadline<'_>) -> Range<usize> {
    let (rank, world) = deadline.ranks();
    let part = len / world;
    rank * part..(rank + 1) * part
}

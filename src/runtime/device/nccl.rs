//! Device operations through NCCL. NCCL reduces in its own order; for the canonical order, ranks exchange
//! slices and fold them on the device.

use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::canonical::{Goal, Turn, turns};
use super::ffi_fold::Folder;
use super::kernel::FoldKernel;
use super::{DeviceDeadline, DeviceElement, Trouble};
use crate::runtime::element::{ReduceOp, ReduceOrder};
use crate::runtime::nccl::{BufferLease, Communicator};

/// Bytes of scratch memory of a device for reductions in the canonical order.
const SCRATCH_BYTES: usize = 128 << 20;

/// NCCL backend of a device group.
pub(super) struct Nccl {
    pub(super) communicator: Communicator,
    /// Kernels for the canonical order; `None`: NCCL reduces in its own order.
    pub(super) folder: Option<Folder>,
}

impl Nccl {
    pub(super) fn order(&self) -> ReduceOrder {
        if self.folder.is_some() { ReduceOrder::Canonical } else { ReduceOrder::Any }
    }

    /// Reduces the data of all ranks; all of them or the root receive the result.
    pub(super) fn reduce<T: DeviceElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        goal: Goal,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (stream, len) = (deadline.stream, data.len());
        let Some(executor) = &mut self.folder else {
            let nccl = &mut self.communicator;
            let started = match goal {
                Goal::Root(root) => nccl.reduce(data, op, root, stream),
                Goal::All | Goal::Parts => nccl.all_reduce(data, op, stream),
            };
            return Ok(started?);
        };
        let data = BufferLease::to_write(data, stream);
        let mut fold =
            Canonical { nccl: &mut self.communicator, folder: executor, op, patience: deadline };
        let ranks = deadline.ranks();
        turns(goal, ranks, len, SCRATCH_BYTES / size_of::<T>())
            .try_for_each(|turn| fold.take(&turn, &data, &data))
    }

    /// Reduces so that rank `r` receives part `r`.
    pub(super) fn reduce_scatter<T: DeviceElement>(
        &mut self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (stream, len) = (deadline.stream, output.len());
        let Some(executor) = &mut self.folder else {
            return Ok(self.communicator.reduce_scatter(input, output, op, stream)?);
        };
        let (input, output) =
            (BufferLease::to_read(input, stream), BufferLease::to_write(output, stream));
        let mut fold =
            Canonical { nccl: &mut self.communicator, folder: executor, op, patience: deadline };
        let ranks = deadline.ranks();
        turns(Goal::Parts, ranks, len, SCRATCH_BYTES / size_of::<T>())
            .try_for_each(|turn| fold.take(&turn, &input, &output))
    }
}

/// A reduction in the canonical order.
struct Canonical<'a> {
    nccl: &'a mut Communicator,
    folder: &'a mut Folder,
    op: ReduceOp,
    patience: &'a DeviceDeadline<'a>,
}

impl Canonical<'_> {
    /// Enqueues one round on the stream.
    fn take<T: DeviceElement>(
        &mut self,
        turn: &Turn,
        input: &BufferLease<'_, T>,
        output: &BufferLease<'_, T>,
    ) -> Result<(), Trouble> {
        let stream: &Arc<CudaStream> = self.patience.stream;
        let (_, parts) = self.patience.ranks();
        let kernel = FoldKernel { dtype: T::DTYPE, op: self.op, parts };
        {
            let mut scratch = self.folder.scratch::<T>(turn.scratch(), stream)?;
            let scratch = BufferLease::to_write(&mut scratch, stream);
            self.nccl.exchange_held((input, &turn.gives), (&scratch, &turn.takes), stream)?;
        }
        self.patience.taken_up(self.nccl)?;
        self.folder.fold::<T>(kernel, (turn.stride, turn.len), stream)?;
        let scratch = self.folder.scratch::<T>(turn.scratch(), stream)?;
        let scratch = BufferLease::to_read(&scratch, stream);
        self.nccl.exchange_held((&scratch, &turn.results), (output, &turn.places), stream)?;
        self.patience.taken_up(self.nccl)
    }
}

//! Device operations by NCCL. NCCL reduces in an order of its own; for the canonical order ranks
//! exchange slices and fold them.

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

pub(super) struct Nccl {
    pub(super) communicator: Communicator,
    /// Kernels for the canonical order; `None`: NCCL reduces in its own order.
    pub(super) folder: Option<Folder>,
}

impl Nccl {
    pub(super) fn order(&self) -> ReduceOrder {
        if self.folder.is_some() { ReduceOrder::Canonical } else { ReduceOrder::Any }
    }

    /// Reduces for all ranks or for one.
    pub(super) fn reduce<T: DeviceElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        goal: Goal,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (stream, len) = (patience.stream, data.len());
        let Some(folder) = &mut self.folder else {
            let nccl = &mut self.communicator;
            let begun = match goal {
                Goal::Root(root) => nccl.reduce(data, op, root, stream),
                Goal::All | Goal::Parts => nccl.all_reduce(data, op, stream),
            };
            return Ok(begun?);
        };
        let data = BufferLease::to_write(data, stream);
        let mut fold = Canonical { nccl: &mut self.communicator, folder, op, patience };
        let ranks = patience.ranks();
        turns(goal, ranks, len, SCRATCH_BYTES / size_of::<T>())
            .try_for_each(|turn| fold.take(&turn, &data, &data))
    }

    /// Reduces so that rank `r` receives part `r`.
    pub(super) fn reduce_scatter<T: DeviceElement>(
        &mut self,
        all: &impl DevicePtr<T>,
        ours: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (stream, len) = (patience.stream, ours.len());
        let Some(folder) = &mut self.folder else {
            return Ok(self.communicator.reduce_scatter(all, ours, op, stream)?);
        };
        let (all, ours) = (BufferLease::to_read(all, stream), BufferLease::to_write(ours, stream));
        let mut fold = Canonical { nccl: &mut self.communicator, folder, op, patience };
        let ranks = patience.ranks();
        turns(Goal::Parts, ranks, len, SCRATCH_BYTES / size_of::<T>())
            .try_for_each(|turn| fold.take(&turn, &all, &ours))
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
    /// Enqueues one turn on the stream.
    fn take<T: DeviceElement>(
        &mut self,
        turn: &Turn,
        given: &BufferLease<'_, T>,
        taken: &BufferLease<'_, T>,
    ) -> Result<(), Trouble> {
        let stream: &Arc<CudaStream> = self.patience.stream;
        let (_, parts) = self.patience.ranks();
        let kernel = FoldKernel { dtype: T::DTYPE, op: self.op, parts };
        {
            let mut scratch = self.folder.scratch::<T>(turn.scratch(), stream)?;
            let scratch = BufferLease::to_write(&mut scratch, stream);
            self.nccl.exchange_held((given, &turn.gives), (&scratch, &turn.takes), stream)?;
        }
        self.patience.taken_up(self.nccl)?;
        self.folder.fold::<T>(kernel, (turn.stride, turn.len), stream)?;
        let scratch = self.folder.scratch::<T>(turn.scratch(), stream)?;
        let scratch = BufferLease::to_read(&scratch, stream);
        self.nccl.exchange_held((&scratch, &turn.results), (taken, &turn.places), stream)?;
        self.patience.taken_up(self.nccl)
    }
}

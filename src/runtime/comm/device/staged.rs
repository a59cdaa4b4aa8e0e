//! Device operations through host memory: the host's group runs them on chunks in pinned memory of the
//! segment, while other chunks are copied.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut};

use crate::cuda::driver::driver_message;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::ffi_pinned::{DeviceCopier, OperandMemory, PinnedSlots};
use crate::runtime::comm::device::pipeline::{
    AwaitedCopy, BufferSide, ChunkBuffer, ChunkStep, run, steps,
};
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::region::{CallMemory, PostOp, SharedMemory, SourceMemory};
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::error::{Error, Result};

/// What the host's group does with a chunk.
type ChunkWork<'a, T> =
    dyn FnMut(&ChunkStep, &mut ChunkBuffer<T>) -> Result<(), CollectiveError> + 'a;

/// Staged backend of a device group: streams and pinned memory.
pub(crate) struct Staged {
    pinned: PinnedSlots,
    streams: [Arc<CudaStream>; 2],
}

/// Division of an operation into chunks: the memory of this rank, and the parts in a slot.
#[derive(Clone, Copy)]
struct Chunking {
    input: BufferSide,
    output: BufferSide,
    /// Largest number of parts that any rank has in a slot; equal on all ranks, so that they have
    /// the same chunks.
    parts: usize,
    is_in_place: bool,
}

impl Staged {
    pub(crate) fn new(group: &Group, context: &Arc<CudaContext>) -> Result<Self> {
        let stream = || {
            let stream = context.new_stream();
            stream.map_err(|error| {
                Error::Device(format!("cannot create a CUDA stream: {}", driver_message(error)))
            })
        };
        let pinned = PinnedSlots::new(context, |bytes| group.alloc(bytes))?;
        Ok(Self { pinned, streams: [stream()?, stream()?] })
    }

    /// Why host memory is not pinned, so that copies are slow.
    pub(crate) fn pinning_refusal(&self) -> Option<&str> {
        self.pinned.refusal()
    }

    pub(crate) fn all_reduce<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        reduction: DividedReduction,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let post_op = PostOp::of(reduction);
        self.in_place(data, (true, true), deadline, |memory| {
            group.run_blocking(|host| host.all_reduce(memory, reduction.op, post_op))
        })
    }

    pub(crate) fn reduce<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let is_root = group.rank() == root;
        self.in_place(data, (true, is_root), deadline, |memory| {
            group.run_blocking(|host| host.reduce(memory, op, root))
        })
    }

    pub(crate) fn broadcast<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let is_root = group.rank() == root;
        self.in_place(data, (is_root, !is_root), deadline, |memory| {
            group.run_blocking(|host| host.broadcast(memory, root))
        })
    }

    pub(crate) fn all_gather<T: DeviceElement>(
        &mut self,
        group: &Group,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (world, part) = (group.world_size(), input.len());
        let chunking =
            Chunking::out_of_place(BufferSide::Whole(part), BufferSide::Parts(world, part), world);
        self.out_of_place((input, output), chunking, deadline, |step, slot| {
            gather_chunk(group, step, slot)
        })
    }

    /// Gathers part `r` of the data of every rank `r`.
    pub(crate) fn all_gather_in_place<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (world, part) = (group.world_size(), data.len() / group.world_size());
        let own = group.rank() * part..(group.rank() + 1) * part;
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::within(data, (&own, &(0..world * part)), &out);
        let chunking =
            Chunking::out_of_place(BufferSide::Whole(part), BufferSide::Parts(world, part), world);
        self.run(ends, (&out, &back), chunking, deadline, &mut |step, slot| {
            gather_chunk(group, step, slot)
        })
    }

    pub(crate) fn reduce_scatter<T: DeviceElement>(
        &mut self,
        group: &Group,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        reduction: DividedReduction,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (world, part) = (group.world_size(), output.len());
        let chunking =
            Chunking::out_of_place(BufferSide::Parts(world, part), BufferSide::Whole(part), world);
        self.out_of_place((input, output), chunking, deadline, |step, slot| {
            scatter_chunk(group, step, slot, reduction)
        })
    }

    /// Reduces so that part `r` of the data of rank `r` becomes that part of the reduction. Chunks are ranges of
    /// every part, so that no chunk contains what an earlier one has written.
    pub(crate) fn reduce_scatter_in_place<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        reduction: DividedReduction,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (world, part) = (group.world_size(), data.len() / group.world_size());
        let own = group.rank() * part..(group.rank() + 1) * part;
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::within(data, (&(0..world * part), &own), &out);
        let chunking =
            Chunking::out_of_place(BufferSide::Parts(world, part), BufferSide::Whole(part), world);
        self.run(ends, (&out, &back), chunking, deadline, &mut |step, slot| {
            scatter_chunk(group, step, slot, reduction)
        })
    }

    pub(crate) fn gather<T: DeviceElement>(
        &mut self,
        group: &Group,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (world, part) = (group.world_size(), input.len());
        let is_root = group.rank() == root;
        let back = if is_root { BufferSide::Parts(world, part) } else { BufferSide::None };
        let chunking = Chunking::out_of_place(BufferSide::Whole(part), back, world);
        self.out_of_place((input, output), chunking, deadline, |step, slot| {
            let output_len = if is_root { world * step.len } else { 0 };
            group.gather(&slot.input[..step.len], &mut slot.output[..output_len], root)
        })
    }

    pub(crate) fn scatter<T: DeviceElement>(
        &mut self,
        group: &Group,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (world, part) = (group.world_size(), output.len());
        let is_root = group.rank() == root;
        let out = if is_root { BufferSide::Parts(world, part) } else { BufferSide::None };
        let chunking = Chunking::out_of_place(out, BufferSide::Whole(part), world);
        self.out_of_place((input, output), chunking, deadline, |step, slot| {
            let input_len = if is_root { world * step.len } else { 0 };
            group.scatter(&slot.input[..input_len], &mut slot.output[..step.len], root)
        })
    }

    pub(crate) fn all_to_all<T: DeviceElement>(
        &mut self,
        group: &Group,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let world = group.world_size();
        let side = BufferSide::Parts(world, input.len() / world);
        self.out_of_place(
            (input, output),
            Chunking::out_of_place(side, side, world),
            deadline,
            |step, slot| {
                let len = world * step.len;
                group.all_to_all(&slot.input[..len], &mut slot.output[..len])
            },
        )
    }

    pub(crate) fn send_recv<T: DeviceElement>(
        &mut self,
        group: &Group,
        (input, to): (&impl DevicePtr<T>, usize),
        (output, from): (&mut impl DevicePtrMut<T>, usize),
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let chunking = Chunking::out_of_place(
            BufferSide::Whole(input.len()),
            BufferSide::Whole(output.len()),
            1,
        );
        self.out_of_place((input, output), chunking, deadline, |step, slot| {
            // Peers may have more or fewer chunks than this rank: empty ones are not sent.
            let (sent, received) = (total_len(&step.input_ranges), total_len(&step.output_ranges));
            let sends = [(to, &slot.input[..sent])];
            let recvs = vec![(from, &mut slot.output[..received])];
            let sends = if sent == 0 { &[][..] } else { &sends[..] };
            group.exchange(sends, if received == 0 { Vec::new() } else { recvs })
        })
    }

    /// Runs an operation on memory that is input, output, or both.
    fn in_place<T: DeviceElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        (is_input, is_output): (bool, bool),
        deadline: &DeviceDeadline<'_>,
        mut work: impl FnMut(CallMemory<'_, T>) -> Result<(), CollectiveError>,
    ) -> Result<(), OperationFailure> {
        let side = |is_used| if is_used { BufferSide::Whole(data.len()) } else { BufferSide::None };
        let chunking = Chunking {
            input: side(is_input),
            output: side(is_output),
            parts: 1,
            is_in_place: true,
        };
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::in_place(data, &out);
        self.run(ends, (&out, &back), chunking, deadline, &mut |step, slot| {
            work(CallMemory::Shared(SharedMemory(slot.input.window().part(&(0..step.len)))))
        })
    }

    /// Runs an operation from one memory to another.
    fn out_of_place<T: DeviceElement>(
        &mut self,
        (input, output): (&impl DevicePtr<T>, &mut impl DevicePtrMut<T>),
        chunking: Chunking,
        deadline: &DeviceDeadline<'_>,
        mut work: impl FnMut(&ChunkStep, &mut ChunkBuffer<T>) -> Result<(), CollectiveError>,
    ) -> Result<(), OperationFailure> {
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::out_of_place((input, &out), (output, &back));
        self.run(ends, (&out, &back), chunking, deadline, &mut work)
    }

    /// Runs `work` on every chunk between its copy to the host and its copy back. There is one copy of this code for
    /// each type, not for each operation.
    fn run<T: DeviceElement>(
        &mut self,
        ends: OperandMemory<'_, T>,
        streams: (&Arc<CudaStream>, &Arc<CudaStream>),
        chunking: Chunking,
        deadline: &DeviceDeadline<'_>,
        work: &mut ChunkWork<'_, T>,
    ) -> Result<(), OperationFailure> {
        let steps =
            steps(chunking.input, chunking.output, chunking.parts, PinnedSlots::slot_len::<T>());
        let steps: Vec<ChunkStep> = steps.collect();
        let timeout_message =
            || "the GPU did not complete a copy within the timeout of the group".to_owned();
        let mut copier = DeviceCopier::new(&mut self.pinned, streams, ends);
        let wait = |awaited, is_done: &mut dyn FnMut() -> Result<bool, OperationFailure>| {
            match awaited {
                AwaitedCopy::ToHost => deadline.wait(is_done, timeout_message),
                // All ranks have done their part of this operation, so it succeeds even if one is lost now.
                AwaitedCopy::ToDevice => deadline.wait_despite_loss(is_done, timeout_message),
            }
        };
        run(&mut copier, &steps, chunking.is_in_place, wait, |step, slot| Ok(work(step, slot)?))
    }
}

impl Chunking {
    fn out_of_place(input: BufferSide, output: BufferSide, parts: usize) -> Self {
        Self { input, output, parts, is_in_place: false }
    }
}

/// All-gather of a chunk from the input of its slot to the output.
fn gather_chunk<T: Element>(
    group: &Group,
    step: &ChunkStep,
    slot: &ChunkBuffer<T>,
) -> Result<(), CollectiveError> {
    let own_part = slot.input.window().part(&(0..step.len));
    let all = slot.output.window().part(&(0..group.world_size() * step.len));
    group.run_blocking(|host| {
        host.all_gather(
            SourceMemory::Shared(SharedMemory(own_part)),
            CallMemory::Shared(SharedMemory(all)),
        )
    })
}

/// Reduce-scatter of a chunk from the input of its slot to the output.
fn scatter_chunk<T: Element>(
    group: &Group,
    step: &ChunkStep,
    slot: &ChunkBuffer<T>,
    reduction: DividedReduction,
) -> Result<(), CollectiveError> {
    let (op, post_op) = (reduction.op, PostOp::of(reduction));
    let all = slot.input.window().part(&(0..group.world_size() * step.len));
    let own_part = slot.output.window().part(&(0..step.len));
    group.run_blocking(|host| {
        let (all, own_part) = (SharedMemory(all), SharedMemory(own_part));
        host.reduce_scatter(SourceMemory::Shared(all), CallMemory::Shared(own_part), op, post_op)
    })
}

fn total_len(ranges: &[std::ops::Range<usize>]) -> usize {
    ranges.iter().map(ExactSizeIterator::len).sum()
}

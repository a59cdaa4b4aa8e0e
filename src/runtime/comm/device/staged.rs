//! Device operations through host memory: the host's group runs them on chunks in pinned memory of the
//! segment, while other chunks are copied.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use crate::cuda::driver::driver_message;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::device::chunk::ChunkBuffer;
use crate::runtime::comm::device::ffi_pinned::{DeviceCopier, OperandMemory, PinnedSlots};
use crate::runtime::comm::device::operand::DeviceOperand;
use crate::runtime::comm::device::pipeline::{AwaitedCopy, BufferSide, ChunkStep, run, steps};
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::gather::Counts;
use crate::runtime::comm::host::region::{CallMemory, PostOp, SourceMemory};
use crate::runtime::dtype::element::{Dtype, ReduceOp};
use crate::runtime::dtype::with_type::with_type;
use crate::runtime::error::{Error, Result};

/// What the host's group does with a chunk.
type ChunkWork<'a> = dyn FnMut(&ChunkStep, &mut ChunkBuffer) -> Result<(), CollectiveError> + 'a;

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

    pub(crate) fn all_reduce(
        &mut self,
        data: &mut dyn DeviceOperand,
        reduction: DividedReduction,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (op, post_op, dtype) = (reduction.op, PostOp::of(reduction), data.dtype());
        self.in_place(data, (true, true), deadline, &mut |step, slot| {
            deadline.group.run_blocking(|host| {
                with_type!(dtype, T => {
                    host.all_reduce(CallMemory::<T>::Shared(slot.input(step.len)), op, post_op)
                })
            })
        })
    }

    pub(crate) fn reduce(
        &mut self,
        data: &mut dyn DeviceOperand,
        op: ReduceOp,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (dtype, is_root) = (data.dtype(), deadline.group.rank() == root);
        self.in_place(data, (true, is_root), deadline, &mut |step, slot| {
            deadline.group.run_blocking(|host| {
                with_type!(dtype, T => {
                    host.reduce(CallMemory::<T>::Shared(slot.input(step.len)), op, root)
                })
            })
        })
    }

    pub(crate) fn broadcast(
        &mut self,
        data: &mut dyn DeviceOperand,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (dtype, is_root) = (data.dtype(), deadline.group.rank() == root);
        self.in_place(data, (is_root, !is_root), deadline, &mut |step, slot| {
            deadline.group.run_blocking(|host| {
                with_type!(dtype, T => {
                    host.broadcast(CallMemory::<T>::Shared(slot.input(step.len)), root)
                })
            })
        })
    }

    pub(crate) fn all_gather(
        &mut self,
        input: &mut dyn DeviceOperand,
        output: &mut dyn DeviceOperand,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (dtype, chunking) = (input.dtype(), gathering(deadline.group, input.count()));
        self.out_of_place((input, output), chunking, deadline, &mut |step, slot| {
            gather_chunk(deadline.group, dtype, step, slot)
        })
    }

    /// Gathers part `r` of the data of every rank `r`.
    pub(crate) fn all_gather_in_place(
        &mut self,
        data: &mut dyn DeviceOperand,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (group, dtype) = (deadline.group, data.dtype());
        let (world, part) = (group.world_size(), data.count() / group.world_size());
        let own = group.rank() * part..(group.rank() + 1) * part;
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::within(data, (&own, &(0..world * part)), &out);
        let chunking = gathering(group, part);
        self.run(ends, (&out, &back), chunking, deadline, &mut |step, slot| {
            gather_chunk(group, dtype, step, slot)
        })
    }

    pub(crate) fn reduce_scatter(
        &mut self,
        input: &mut dyn DeviceOperand,
        output: &mut dyn DeviceOperand,
        reduction: DividedReduction,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (dtype, chunking) = (input.dtype(), scattering(deadline.group, output.count()));
        self.out_of_place((input, output), chunking, deadline, &mut |step, slot| {
            scatter_chunk(deadline.group, (dtype, reduction), step, slot)
        })
    }

    /// Reduces so that part `r` of the data of rank `r` becomes that part of the reduction. Chunks are ranges of
    /// every part, so that no chunk contains what an earlier one has written.
    pub(crate) fn reduce_scatter_in_place(
        &mut self,
        data: &mut dyn DeviceOperand,
        reduction: DividedReduction,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (group, dtype) = (deadline.group, data.dtype());
        let (world, part) = (group.world_size(), data.count() / group.world_size());
        let own = group.rank() * part..(group.rank() + 1) * part;
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::within(data, (&(0..world * part), &own), &out);
        let chunking = scattering(group, part);
        self.run(ends, (&out, &back), chunking, deadline, &mut |step, slot| {
            scatter_chunk(group, (dtype, reduction), step, slot)
        })
    }

    pub(crate) fn gather(
        &mut self,
        input: &mut dyn DeviceOperand,
        output: &mut dyn DeviceOperand,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (group, part) = (deadline.group, input.count());
        let parts = if group.rank() == root { group.world_size() } else { 0 };
        let mut chunking = gathering(group, part);
        if parts == 0 {
            chunking.output = BufferSide::None;
        }
        self.out_of_place((input, output), chunking, deadline, &mut |step, slot| {
            let (input, output) = slot.bytes(step.len, parts * step.len);
            group.run_blocking(|host| host.gather(input, output, root))
        })
    }

    pub(crate) fn scatter(
        &mut self,
        input: &mut dyn DeviceOperand,
        output: &mut dyn DeviceOperand,
        root: usize,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (group, part) = (deadline.group, output.count());
        let parts = if group.rank() == root { group.world_size() } else { 0 };
        let mut chunking = scattering(group, part);
        if parts == 0 {
            chunking.input = BufferSide::None;
        }
        self.out_of_place((input, output), chunking, deadline, &mut |step, slot| {
            let (input, output) = slot.bytes(parts * step.len, step.len);
            group.run_blocking(|host| host.scatter(input, output, root))
        })
    }

    pub(crate) fn all_to_all(
        &mut self,
        input: &mut dyn DeviceOperand,
        output: &mut dyn DeviceOperand,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (group, world) = (deadline.group, deadline.group.world_size());
        let side = BufferSide::Parts(world, input.count() / world);
        let chunking = Chunking::out_of_place(side, side, world);
        self.out_of_place((input, output), chunking, deadline, &mut |step, slot| {
            let (input, output) = slot.bytes(world * step.len, world * step.len);
            let counts = Counts::Equal(input.len() / world);
            group.run_blocking(|host| host.all_to_all(input, output, counts))
        })
    }

    pub(crate) fn send_recv(
        &mut self,
        (input, to): (&mut dyn DeviceOperand, usize),
        (output, from): (&mut dyn DeviceOperand, usize),
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (sent, received) = (input.count(), output.count());
        let chunking =
            Chunking::out_of_place(BufferSide::Whole(sent), BufferSide::Whole(received), 1);
        self.out_of_place((input, output), chunking, deadline, &mut |step, slot| {
            // Peers may have more or fewer chunks than this rank: empty ones are not sent.
            let (sent, received) = (total_len(&step.input_ranges), total_len(&step.output_ranges));
            let (input, output) = slot.bytes(sent, received);
            let sends = [(to, input)];
            let sends = if sent == 0 { &[][..] } else { &sends[..] };
            let recvs = if received == 0 { Vec::new() } else { vec![(from, output)] };
            deadline.group.exchange(sends, recvs)
        })
    }

    /// Runs an operation on memory that is input, output, or both.
    fn in_place(
        &mut self,
        data: &mut dyn DeviceOperand,
        (is_input, is_output): (bool, bool),
        deadline: &DeviceDeadline<'_>,
        work: &mut ChunkWork<'_>,
    ) -> Result<(), OperationFailure> {
        let len = data.count();
        let side = |is_used| if is_used { BufferSide::Whole(len) } else { BufferSide::None };
        let chunking = Chunking {
            input: side(is_input),
            output: side(is_output),
            parts: 1,
            is_in_place: true,
        };
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::within(data, (&(0..len), &(0..len)), &out);
        self.run(ends, (&out, &back), chunking, deadline, work)
    }

    /// Runs an operation from one memory to another.
    fn out_of_place(
        &mut self,
        (input, output): (&mut dyn DeviceOperand, &mut dyn DeviceOperand),
        chunking: Chunking,
        deadline: &DeviceDeadline<'_>,
        work: &mut ChunkWork<'_>,
    ) -> Result<(), OperationFailure> {
        let [out, back] = self.streams.clone();
        let ends = OperandMemory::out_of_place((input, &out), (output, &back));
        self.run(ends, (&out, &back), chunking, deadline, work)
    }

    /// Runs `work` on every chunk between its copy to the host and its copy back.
    fn run(
        &mut self,
        ends: OperandMemory<'_>,
        streams: (&Arc<CudaStream>, &Arc<CudaStream>),
        chunking: Chunking,
        deadline: &DeviceDeadline<'_>,
        work: &mut ChunkWork<'_>,
    ) -> Result<(), OperationFailure> {
        let slot_len = PinnedSlots::slot_len(ends.element_bytes());
        let steps = steps(chunking.input, chunking.output, chunking.parts, slot_len);
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

/// Chunks of an operation from one part to a part of every rank.
fn gathering(group: &Group, part: usize) -> Chunking {
    let world = group.world_size();
    Chunking::out_of_place(BufferSide::Whole(part), BufferSide::Parts(world, part), world)
}

/// Chunks of an operation from a part of every rank to one part.
fn scattering(group: &Group, part: usize) -> Chunking {
    let world = group.world_size();
    Chunking::out_of_place(BufferSide::Parts(world, part), BufferSide::Whole(part), world)
}

/// All-gather of a chunk from the input of its slot to the output.
fn gather_chunk(
    group: &Group,
    dtype: Dtype,
    step: &ChunkStep,
    slot: &ChunkBuffer,
) -> Result<(), CollectiveError> {
    let all = group.world_size() * step.len;
    group.run_blocking(|host| {
        with_type!(dtype, T => {
            let input = SourceMemory::<T>::Shared(slot.input(step.len));
            host.all_gather(input, CallMemory::Shared(slot.output(all)))
        })
    })
}

/// Reduce-scatter of a chunk from the input of its slot to the output.
fn scatter_chunk(
    group: &Group,
    (dtype, reduction): (Dtype, DividedReduction),
    step: &ChunkStep,
    slot: &ChunkBuffer,
) -> Result<(), CollectiveError> {
    let (op, post_op, all) = (reduction.op, PostOp::of(reduction), group.world_size() * step.len);
    group.run_blocking(|host| {
        with_type!(dtype, T => {
            let input = SourceMemory::<T>::Shared(slot.input(all));
            host.reduce_scatter(input, CallMemory::Shared(slot.output(step.len)), op, post_op)
        })
    })
}

fn total_len(ranges: &[std::ops::Range<usize>]) -> usize {
    ranges.iter().map(ExactSizeIterator::len).sum()
}

//! Device operations by way of the host: the operations of the host's group on chunks of pinned
//! memory of the segment, while other chunks are copied.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut};

use super::ffi::{DeviceCopier, Ends, Pinned, words_of};
use super::pipeline::{BufferSide, ChunkBuffer, ChunkStep, run, steps};
use super::{DeviceDeadline, DeviceElement, Trouble};
use crate::runtime::element::ReduceOp;
use crate::runtime::error::{CollectiveError, Error, Result};
use crate::runtime::group::Group;
use crate::runtime::memory::{CallMemory, Finish, SharedMemory};

/// Streams and pinned memory for the operations of a group by way of the host.
pub(super) struct Staged {
    pinned: Pinned,
    streams: [Arc<CudaStream>; 2],
}

/// Division of an operation into chunks.
#[derive(Clone, Copy)]
struct Cut {
    out: BufferSide,
    back: BufferSide,
    /// Largest number of parts that any rank has in a slot; equal on all ranks, so that they have
    /// the same chunks.
    parts: usize,
    is_in_place: bool,
}

impl Staged {
    pub(super) fn new(group: &Group, context: &Arc<CudaContext>) -> Result<Self> {
        let stream = || {
            let made = context.new_stream();
            made.map_err(|error| {
                Error::Device(format!("cannot make a stream: {}", words_of(error)))
            })
        };
        let pinned = Pinned::new(context, |bytes| group.alloc(bytes))?;
        Ok(Self { pinned, streams: [stream()?, stream()?] })
    }

    pub(super) fn all_reduce<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        self.in_place(data, (true, true), patience, |memory| {
            group.blocking(|engine| engine.all_reduce(memory, op, Finish::Keep))
        })
    }

    pub(super) fn reduce<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        root: usize,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let is_root = group.rank() == root;
        self.in_place(data, (true, is_root), patience, |memory| {
            group.blocking(|engine| engine.reduce(memory, op, root))
        })
    }

    pub(super) fn broadcast<T: DeviceElement>(
        &mut self,
        group: &Group,
        data: &mut impl DevicePtrMut<T>,
        root: usize,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let is_root = group.rank() == root;
        self.in_place(data, (is_root, !is_root), patience, |memory| {
            group.blocking(|engine| engine.broadcast(memory, root))
        })
    }

    pub(super) fn all_gather<T: DeviceElement>(
        &mut self,
        group: &Group,
        ours: &impl DevicePtr<T>,
        all: &mut impl DevicePtrMut<T>,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (world, part) = (group.world_size(), ours.len());
        let cut = Cut::apart(BufferSide::Whole(part), BufferSide::Parts(world, part), world);
        self.apart((ours, all), cut, patience, |step, ChunkBuffer { input, output }| {
            group.all_gather(&input[..step.len], &mut output[..world * step.len])
        })
    }

    pub(super) fn reduce_scatter<T: DeviceElement>(
        &mut self,
        group: &Group,
        all: &impl DevicePtr<T>,
        ours: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (world, part) = (group.world_size(), ours.len());
        let cut = Cut::apart(BufferSide::Parts(world, part), BufferSide::Whole(part), world);
        self.apart((all, ours), cut, patience, |step, ChunkBuffer { input, output }| {
            group.reduce_scatter(&input[..world * step.len], &mut output[..step.len], op)
        })
    }

    pub(super) fn gather<T: DeviceElement>(
        &mut self,
        group: &Group,
        ours: &impl DevicePtr<T>,
        all: &mut impl DevicePtrMut<T>,
        root: usize,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (world, part) = (group.world_size(), ours.len());
        let is_root = group.rank() == root;
        let back = if is_root { BufferSide::Parts(world, part) } else { BufferSide::None };
        let cut = Cut::apart(BufferSide::Whole(part), back, world);
        self.apart((ours, all), cut, patience, |step, ChunkBuffer { input, output }| {
            let taken = if is_root { world * step.len } else { 0 };
            group.gather(&input[..step.len], &mut output[..taken], root)
        })
    }

    pub(super) fn scatter<T: DeviceElement>(
        &mut self,
        group: &Group,
        all: &impl DevicePtr<T>,
        ours: &mut impl DevicePtrMut<T>,
        root: usize,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let (world, part) = (group.world_size(), ours.len());
        let is_root = group.rank() == root;
        let out = if is_root { BufferSide::Parts(world, part) } else { BufferSide::None };
        let cut = Cut::apart(out, BufferSide::Whole(part), world);
        self.apart((all, ours), cut, patience, |step, ChunkBuffer { input, output }| {
            let given = if is_root { world * step.len } else { 0 };
            group.scatter(&input[..given], &mut output[..step.len], root)
        })
    }

    pub(super) fn all_to_all<T: DeviceElement>(
        &mut self,
        group: &Group,
        given: &impl DevicePtr<T>,
        taken: &mut impl DevicePtrMut<T>,
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let world = group.world_size();
        let side = BufferSide::Parts(world, given.len() / world);
        self.apart((given, taken), Cut::apart(side, side, world), patience, |step, slot| {
            let len = world * step.len;
            group.all_to_all(&slot.input[..len], &mut slot.output[..len])
        })
    }

    pub(super) fn send_recv<T: DeviceElement>(
        &mut self,
        group: &Group,
        (values, to): (&impl DevicePtr<T>, usize),
        (taken, from): (&mut impl DevicePtrMut<T>, usize),
        patience: &DeviceDeadline<'_>,
    ) -> Result<(), Trouble> {
        let cut = Cut::apart(BufferSide::Whole(values.len()), BufferSide::Whole(taken.len()), 1);
        self.apart((values, taken), cut, patience, |step, ChunkBuffer { input, output }| {
            // Peers may have more or fewer chunks than this rank: empty ones are not sent.
            let (given, wanted) = (total(&step.out), total(&step.back));
            let sends = [(to, &input[..given])];
            let recvs = vec![(from, &mut output[..wanted])];
            let sends = if given == 0 { &[][..] } else { &sends[..] };
            group.exchange(sends, if wanted == 0 { Vec::new() } else { recvs })
        })
    }

    /// Runs an operation on memory that is input, output, or both.
    fn in_place<T: DeviceElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        (gives, takes): (bool, bool),
        patience: &DeviceDeadline<'_>,
        mut work: impl FnMut(CallMemory<'_, T>) -> Result<(), CollectiveError>,
    ) -> Result<(), Trouble> {
        let side = |is_used| if is_used { BufferSide::Whole(data.len()) } else { BufferSide::None };
        let cut = Cut { out: side(gives), back: side(takes), parts: 1, is_in_place: true };
        let [out, back] = self.streams.clone();
        let ends = Ends::in_place(data, &out);
        self.run(ends, (&out, &back), cut, patience, |step, slot| {
            work(CallMemory::Shared(SharedMemory(slot.input.window().part(&(0..step.len)))))
        })
    }

    /// Runs an operation from one memory to another.
    fn apart<T: DeviceElement>(
        &mut self,
        (given, taken): (&impl DevicePtr<T>, &mut impl DevicePtrMut<T>),
        cut: Cut,
        patience: &DeviceDeadline<'_>,
        work: impl FnMut(&ChunkStep, &mut ChunkBuffer<T>) -> Result<(), CollectiveError>,
    ) -> Result<(), Trouble> {
        let [out, back] = self.streams.clone();
        let ends = Ends::apart((given, &out), (taken, &back));
        self.run(ends, (&out, &back), cut, patience, work)
    }

    /// Runs `work` on every chunk between its copy to the host and its copy back.
    fn run<T: DeviceElement>(
        &mut self,
        ends: Ends<'_, T>,
        streams: (&Arc<CudaStream>, &Arc<CudaStream>),
        cut: Cut,
        patience: &DeviceDeadline<'_>,
        mut work: impl FnMut(&ChunkStep, &mut ChunkBuffer<T>) -> Result<(), CollectiveError>,
    ) -> Result<(), Trouble> {
        let steps = steps(cut.out, cut.back, cut.parts, Pinned::slot_len::<T>());
        let steps: Vec<ChunkStep> = steps.collect();
        let late = || "the deadline passed while waiting for copies of the GPU".to_owned();
        let mut copier = DeviceCopier::new(&mut self.pinned, streams, ends);
        let wait =
            |is_done: &mut dyn FnMut() -> Result<bool, Trouble>| patience.wait(is_done, late);
        run(&mut copier, &steps, cut.is_in_place, wait, |step, slot| Ok(work(step, slot)?))
    }
}

impl Cut {
    fn apart(out: BufferSide, back: BufferSide, parts: usize) -> Self {
        Self { out, back, parts, is_in_place: false }
    }
}

fn total(ranges: &[std::ops::Range<usize>]) -> usize {
    ranges.iter().map(ExactSizeIterator::len).sum()
}

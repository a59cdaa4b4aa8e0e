//! [`Collectives`]: operations in flight, on the memory of any kind of group.
//!
//! Data-parallel training and sharding are written against these traits, once for groups in host memory and
//! for groups of devices. They submit operations on ranges of long-lived buffers: a range is lent to an
//! operation, and the [`Work`] of the operation returns it.
//!
//! Agreement between ranks never waits on the path of the data. A [`Plan`] compares in full what all ranks
//! are going to submit, once, when it is made. Every step is then compared by its number: host groups send a
//! fingerprint with every round anyway, other groups compare the steps on the host while the data moves.
//!
//! Messages between two ranks are not part of the traits: all ranks take part in these operations in one order,
//! which is how a stream of a device keeps them apart, whereas a message concerns its two ranks alone.
//! [`Group::start_send`], [`Group::start_recv`] and [`Group::start_exchange`] are in flight beside them.

use std::ops::Range;

use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{DividedReduction, Operation};
use crate::runtime::comm::core::traffic::Traffic;
use crate::runtime::comm::executor::OperationEvent;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::region::{CallMemory, PostOp, Region as _, SourceMemory};
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Element, GradientElement, ReduceOp};
use crate::runtime::error::{Error, Result};
use crate::runtime::schedule::tree::Lanes;

/// Group whose operations can be in flight together, on elements of type `T`.
///
/// All ranks submit the same operations in the same order, and one operation begins after the one before it
/// has ended on this rank or in the stream of the device. Submitting does not wait for other ranks, except
/// where a group of devices says so. The
/// [`Group`] behind it has the numbers of the ranks, and takes part in aborts and errors.
pub trait Collectives<T: Element>: AsRef<Group> + Clone {
    /// Memory whose ranges can be lent.
    type Buffer: Lend<Lent = Self::Lent>;
    /// A range of the memory, as an operation holds it.
    type Lent: Send + 'static;

    /// Allocates `len` zeros.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn alloc_shared(&self, len: usize) -> Result<Self::Buffer>;

    /// Replaces the range on every rank by its reduction over all ranks. `on_event` is called when the
    /// operation begins to run and when it has succeeded.
    fn submit_all_reduce(
        &self,
        data: Self::Lent,
        reduction: DividedReduction,
        on_event: impl Fn(OperationEvent) + Send + 'static,
    ) -> Work<Self::Lent>;

    /// Replaces `output` by part `rank` of the reduction of `input` over all ranks; `input` is `world_size`
    /// times as long as `output`.
    fn submit_reduce_scatter(
        &self,
        input: Self::Lent,
        output: Self::Lent,
        reduction: DividedReduction,
    ) -> Work<(Self::Lent, Self::Lent)>;

    /// Replaces part `rank` of `data`, which has `world_size` equal parts, by that part of the reduction of `data`
    /// over all ranks. The other parts are unspecified then.
    fn submit_reduce_scatter_in_place(
        &self,
        data: Self::Lent,
        reduction: DividedReduction,
    ) -> Work<Self::Lent>;

    /// Replaces `output` by part `rank` of the reduction over all lanes of a step, of which every rank has
    /// `lanes`: rank `r` has the lanes `r · lanes..(r + 1) · lanes`. `pieces` are this rank's reductions of the
    /// lanes of each of its [`Lanes::pieces_of`], and `world_size` times as long as `output`; [`ReduceOp::Avg`]
    /// divides by the number of all lanes.
    ///
    /// The order is that of the canonical tree over all lanes. If `lanes` is a power of two, there is one piece,
    /// and [`Self::submit_reduce_scatter`] gives the same bits with less traffic.
    fn submit_reduce_scatter_of_pieces(
        &self,
        pieces: Vec<Self::Lent>,
        output: Self::Lent,
        lanes: usize,
        reduction: DividedReduction,
    ) -> Work<(Vec<Self::Lent>, Self::Lent)>;

    /// Replaces `output` by the `input` of every rank, in rank order; `output` is `world_size` times as long
    /// as `input`.
    fn submit_all_gather(
        &self,
        input: Self::Lent,
        output: Self::Lent,
    ) -> Work<(Self::Lent, Self::Lent)>;

    /// Replaces each of the `world_size` equal parts of `data` by that part of the rank with its number; part
    /// `rank` does not change.
    fn submit_all_gather_in_place(&self, data: Self::Lent) -> Work<Self::Lent>;

    /// Replaces the range on every rank by that of rank `root`.
    fn submit_broadcast(&self, data: Self::Lent, root: usize) -> Work<Self::Lent>;

    /// Returns the operations so far, by kind.
    fn traffic(&self) -> Traffic {
        self.as_ref().traffic()
    }

    /// Compares the steps of all ranks while their operations are in flight; `None` if every operation
    /// compares its calls itself.
    fn submit_step_check(&self, plan: &Plan) -> Option<StepCheck> {
        Some(StepCheck::start(self.as_ref(), plan))
    }
}

/// Memory whose ranges are lent to operations while its owner uses the rest.
pub trait Lend {
    /// A lent range.
    type Lent;

    /// Lends a range, in elements.
    ///
    /// # Panics
    /// If a part of it is lent already, or it is outside the memory.
    fn lend(&mut self, range: &Range<usize>) -> Self::Lent;

    /// Takes a range back.
    fn restore(&mut self, lent: Self::Lent);
}

/// Memory that the processor can read and write.
pub trait HostMemory<T> {
    /// Returns the elements of a range.
    ///
    /// # Panics
    /// If a part of it is lent, or it is outside the memory.
    fn slice_mut(&mut self, range: &Range<usize>) -> &mut [T];
}

/// Collectives whose memory can sum the gradients of micro-batches.
pub trait GradientCollectives<T: GradientElement>: Collectives<T> {
    /// Gradient of a micro-batch that is not reduced yet; memory of this rank alone.
    type Scratch;

    /// Allocates `len` zeros.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn alloc_scratch(&self, len: usize) -> Result<Self::Scratch>;

    /// Fills a gradient with zeros.
    ///
    /// # Errors
    /// If the device fails, as in the other methods.
    fn zero_scratch(&self, gradient: &mut Self::Scratch) -> Result<()>;

    /// Fills a range with zeros.
    fn zero(&self, gradient: &mut Self::Buffer, range: &Range<usize>) -> Result<()>;

    /// Replaces `newer` by `older + newer`.
    fn add_scratch(&self, older: &Self::Scratch, newer: &mut Self::Scratch) -> Result<()>;

    /// Replaces a range of `newer` by `older + newer`.
    fn add(
        &self,
        older: &Self::Scratch,
        newer: &mut Self::Buffer,
        range: &Range<usize>,
    ) -> Result<()>;

    /// Divides a range.
    fn divide(&self, gradient: &mut Self::Buffer, range: &Range<usize>, divisor: u64)
    -> Result<()>;

    /// Loads what this reduction will need, and if `adds`, what additions will need. All ranks call it before they
    /// submit operations: a device loads code only when it is idle.
    fn prepare(&self, reduction: DividedReduction, adds: bool) -> Result<()> {
        let _ = (reduction, adds);
        Ok(())
    }
}

/// A sequence of operations that all ranks repeat every step, identified by a digest of its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    digest: PlanDigest,
    /// Number of steps that have begun.
    steps: u64,
}

/// Digest of the description of a plan.
pub type PlanDigest = [u8; 32];

impl Plan {
    /// Compares the digests of all ranks. `what` names the description in the error.
    ///
    /// # Errors
    /// If the digest of a rank differs, which the error names, or the group fails.
    pub fn agree(group: &Group, digest: PlanDigest, what: &str) -> Result<Self> {
        let mut all = vec![0; digest.len() * group.world_size()];
        group.all_gather(&digest, &mut all)?;
        match all.chunks(digest.len()).position(|other| other != digest) {
            None => Ok(Self { digest, steps: 0 }),
            Some(rank) => Err(Error::BadArgument(format!(
                "{what} of rank {rank} differ from those of rank {}",
                group.rank()
            ))),
        }
    }

    /// Begins the next step.
    pub fn begin_step(&mut self) {
        self.steps += 1;
    }

    /// Bytes that all ranks compare in a step.
    fn words(&self) -> [u8; STEP_BYTES] {
        let mut words = [0; STEP_BYTES];
        words[..32].copy_from_slice(&self.digest);
        words[32..].copy_from_slice(&self.steps.to_le_bytes());
        words
    }
}

const STEP_BYTES: usize = size_of::<PlanDigest>() + size_of::<u64>();

/// Comparison of the steps of all ranks, in flight.
pub struct StepCheck {
    group: Group,
    work: Work<(Vec<u8>, Vec<u8>)>,
}

impl StepCheck {
    /// Starts to compare the step of this rank with those of all ranks.
    pub(crate) fn start(group: &Group, plan: &Plan) -> Self {
        let all = vec![0; STEP_BYTES * group.world_size()];
        let work = group.start_all_gather(plan.words().to_vec(), all);
        Self { group: group.clone(), work }
    }

    /// Waits for all ranks. A rank in another step would exchange data that does not belong together, so
    /// the group is aborted then.
    ///
    /// # Errors
    /// [`Cause::Argument`] with the rank and its step, if a rank is in another step or has another plan.
    pub fn wait(self) -> Result<(), CollectiveError> {
        let (own, all) = self.work.wait()?;
        let Some(rank) = all.chunks(STEP_BYTES).position(|other| other != own) else {
            return Ok(());
        };
        let other = &all[rank * STEP_BYTES..][..STEP_BYTES];
        let (digest, step) = own.split_at(size_of::<PlanDigest>());
        let (other_digest, other_step) = other.split_at(size_of::<PlanDigest>());
        let number = |step: &[u8]| {
            u64::from_le_bytes(step.try_into().expect("the number of a step has 8 bytes"))
        };
        let plan = if digest == other_digest { "this plan" } else { "another plan" };
        let problem = format!(
            "rank {rank} is in step {} of {plan}, this rank in step {} of its own",
            number(other_step),
            number(step)
        );
        self.group.abort(&problem);
        Err(self.group.rejected(Operation::AllGather, Cause::Argument(problem)))
    }
}

impl AsRef<Group> for Group {
    fn as_ref(&self) -> &Group {
        self
    }
}

impl<T: Element> Collectives<T> for Group {
    type Buffer = SharedBuffer<T>;
    type Lent = Lent<T>;

    fn alloc_shared(&self, len: usize) -> Result<SharedBuffer<T>> {
        Ok(SharedBuffer::new(self.alloc(len)?))
    }

    fn submit_all_reduce(
        &self,
        data: Lent<T>,
        reduction: DividedReduction,
        on_event: impl Fn(OperationEvent) + Send + 'static,
    ) -> Work<Lent<T>> {
        let post_op = PostOp::of(reduction);
        let operation = move |backend: &mut HostBackend, data: &mut Lent<T>| {
            backend.all_reduce(data.memory(), reduction.op, post_op)
        };
        self.start_observed(Operation::AllReduce, Ok(()), data, operation, on_event)
    }

    fn submit_reduce_scatter(
        &self,
        input: Lent<T>,
        output: Lent<T>,
        reduction: DividedReduction,
    ) -> Work<(Lent<T>, Lent<T>)> {
        let checked = self.check_parts(Operation::ReduceScatter, input.len(), output.len());
        let (memory, post_op) = ((input, output), PostOp::of(reduction));
        self.start(Operation::ReduceScatter, checked, memory, move |backend, (input, output)| {
            let segment = backend.node.segment.clone();
            let input = SourceMemory::of(input, &segment);
            let output = CallMemory::of(output, &segment);
            backend.reduce_scatter(input, output, reduction.op, post_op)
        })
    }

    fn submit_reduce_scatter_in_place(
        &self,
        data: Lent<T>,
        reduction: DividedReduction,
    ) -> Work<Lent<T>> {
        let (op, post_op) = (Operation::ReduceScatter, PostOp::of(reduction));
        let checked = self.check_divisible(op, data.len());
        self.start(op, checked, data, move |backend, data| {
            backend.reduce_scatter_in_place(data.window(), reduction.op, post_op)
        })
    }

    fn submit_reduce_scatter_of_pieces(
        &self,
        pieces: Vec<Lent<T>>,
        output: Lent<T>,
        lanes: usize,
        reduction: DividedReduction,
    ) -> Work<(Vec<Lent<T>>, Lent<T>)> {
        let op = Operation::ReduceScatterOfPieces;
        let lens: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
        let checked = self.check_pieces(&lens, output.len(), lanes);
        let lanes = Lanes { ranks: self.world_size(), each: lanes };
        self.start(op, checked, (pieces, output), move |backend, (pieces, output)| {
            let pieces: Vec<&[T]> = pieces.iter().map(|piece| &**piece).collect();
            backend.reduce_scatter_of_pieces(&pieces, output, lanes, reduction)
        })
    }

    fn submit_all_gather(&self, input: Lent<T>, output: Lent<T>) -> Work<(Lent<T>, Lent<T>)> {
        let checked = self.check_parts(Operation::AllGather, output.len(), input.len());
        self.start(Operation::AllGather, checked, (input, output), |backend, (input, output)| {
            let segment = backend.node.segment.clone();
            backend.all_gather(SourceMemory::of(input, &segment), CallMemory::of(output, &segment))
        })
    }

    fn submit_all_gather_in_place(&self, data: Lent<T>) -> Work<Lent<T>> {
        let checked = self.check_divisible(Operation::AllGather, data.len());
        self.start(Operation::AllGather, checked, data, |backend, data| {
            backend.all_gather_in_place(data.window())
        })
    }

    fn submit_broadcast(&self, data: Lent<T>, root: usize) -> Work<Lent<T>> {
        self.start_broadcast(data, root)
    }

    /// Every round carries its fingerprint and is compared by its receivers.
    fn submit_step_check(&self, _plan: &Plan) -> Option<StepCheck> {
        None
    }
}

impl<T: GradientElement> GradientCollectives<T> for Group {
    type Scratch = Vec<T>;

    fn alloc_scratch(&self, len: usize) -> Result<Vec<T>> {
        Ok(vec![T::ZERO; len])
    }

    fn zero_scratch(&self, gradient: &mut Vec<T>) -> Result<()> {
        gradient.fill(T::ZERO);
        Ok(())
    }

    fn zero(&self, gradient: &mut SharedBuffer<T>, range: &Range<usize>) -> Result<()> {
        gradient.slice_mut(range).fill(T::ZERO);
        Ok(())
    }

    fn add_scratch(&self, older: &Vec<T>, newer: &mut Vec<T>) -> Result<()> {
        T::combine_right(ReduceOp::Sum, older, newer);
        Ok(())
    }

    fn add(&self, older: &Vec<T>, newer: &mut SharedBuffer<T>, range: &Range<usize>) -> Result<()> {
        T::combine_right(ReduceOp::Sum, &older[range.clone()], newer.slice_mut(range));
        Ok(())
    }

    fn divide(
        &self,
        gradient: &mut SharedBuffer<T>,
        range: &Range<usize>,
        divisor: u64,
    ) -> Result<()> {
        T::divide(gradient.slice_mut(range), divisor);
        Ok(())
    }
}

impl<T: Element> Lend for SharedBuffer<T> {
    type Lent = Lent<T>;

    fn lend(&mut self, range: &Range<usize>) -> Lent<T> {
        self.lend(range)
    }

    fn restore(&mut self, lent: Lent<T>) {
        self.restore(lent);
    }
}

impl<T: Element> HostMemory<T> for SharedBuffer<T> {
    fn slice_mut(&mut self, range: &Range<usize>) -> &mut [T] {
        self.slice_mut(range)
    }
}

impl<T> HostMemory<T> for Vec<T> {
    fn slice_mut(&mut self, range: &Range<usize>) -> &mut [T] {
        &mut self[range.clone()]
    }
}

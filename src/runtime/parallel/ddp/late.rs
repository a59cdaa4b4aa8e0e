//! A group for tests whose operations run as late as they may: when the caller waits for one of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::lock;
use crate::runtime::comm::collectives::{Collectives, GradientCollectives};
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::core::pending::{Outcome, PendingOperation};
use crate::runtime::comm::executor::OperationEvent;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::Element;
use crate::runtime::error::{Error, Result};
use crate::runtime::schedule::tree::Lanes;

/// Operations that were submitted and have not begun.
type Queue = Arc<Mutex<VecDeque<Box<dyn FnOnce() + Send>>>>;

/// Group with late operations.
#[derive(Clone)]
pub(super) struct LateGroup {
    group: Group,
    queue: Queue,
    /// Begin of the range to which nothing can be added, as if the device failed.
    fails_at: Option<usize>,
}

/// Range of this rank's part of `len` elements; shorter than it must be if `len` is not divisible by the number
/// of ranks, which the operation then reports.
fn own_part(group: &Group, len: usize) -> Range<usize> {
    let part = len / group.world_size();
    group.rank() * part..(group.rank() + 1) * part
}

/// A late operation.
struct LateOperation {
    queue: Queue,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

impl LateGroup {
    pub(super) fn new(group: Group) -> Self {
        Self { group, queue: Queue::default(), fails_at: None }
    }

    /// A group whose device fails when a range that begins here is added.
    fn failing_at(group: Group, start: usize) -> Self {
        Self { fails_at: Some(start), ..Self::new(group) }
    }

    fn submit<M: Send + 'static>(
        &self,
        memory: M,
        operation: impl FnOnce(&Group, &mut M) -> Outcome + Send + 'static,
    ) -> Work<M> {
        let (memory, outcome) = (Arc::new(Mutex::new(Some(memory))), Arc::new(Mutex::new(None)));
        let (group, shared_memory, shared_outcome) =
            (self.group.clone(), memory.clone(), outcome.clone());
        lock(&self.queue).push_back(Box::new(move || {
            let mut memory = lock(&shared_memory);
            *lock(&shared_outcome) = Some(operation(
                &group,
                memory.as_mut().expect("memory is taken after the operation only"),
            ));
        }));
        Work::new(LateOperation { queue: self.queue.clone(), outcome }, memory, self.group.clone())
    }
}

impl PendingOperation for LateOperation {
    fn poll(&mut self, limit: Duration) -> bool {
        while !limit.is_zero() && lock(&self.outcome).is_none() {
            let next = lock(&self.queue).pop_front();
            next.expect("an operation without an outcome is in the queue")();
        }
        lock(&self.outcome).is_some()
    }

    fn take(&mut self) -> Option<Outcome> {
        lock(&self.outcome).take()
    }
}

impl AsRef<Group> for LateGroup {
    fn as_ref(&self) -> &Group {
        &self.group
    }
}

impl Collectives<f32> for LateGroup {
    type Buffer = SharedBuffer<f32>;
    type Lent = Lent<f32>;

    fn alloc_shared(&self, len: usize) -> Result<SharedBuffer<f32>> {
        self.group.alloc_shared(len)
    }

    fn submit_all_reduce(
        &self,
        data: Lent<f32>,
        reduction: DividedReduction,
        on_event: impl Fn(OperationEvent) + Send + 'static,
    ) -> Work<Lent<f32>> {
        self.submit(data, move |group, data| {
            on_event(OperationEvent::Started);
            group.all_reduce(&mut **data, reduction.op)?;
            f32::divide(data, reduction.divisor);
            on_event(OperationEvent::Done);
            Ok(())
        })
    }

    fn submit_reduce_scatter(
        &self,
        input: Lent<f32>,
        output: Lent<f32>,
        reduction: DividedReduction,
    ) -> Work<(Lent<f32>, Lent<f32>)> {
        self.submit((input, output), move |group, (input, output)| {
            group.reduce_scatter(input, output, reduction.op)?;
            f32::divide(output, reduction.divisor);
            Ok(())
        })
    }

    /// The other parts become NaN, because no caller may rely on them.
    fn submit_reduce_scatter_in_place(
        &self,
        data: Lent<f32>,
        reduction: DividedReduction,
    ) -> Work<Lent<f32>> {
        self.submit(data, move |group, data| {
            let own = own_part(group, data.len());
            let input = data.to_vec();
            group.reduce_scatter(&input, &mut data[own.clone()], reduction.op)?;
            f32::divide(&mut data[own.clone()], reduction.divisor);
            data[..own.start].fill(f32::NAN);
            data[own.end..].fill(f32::NAN);
            Ok(())
        })
    }

    fn submit_reduce_scatter_of_pieces(
        &self,
        pieces: Vec<Lent<f32>>,
        output: Lent<f32>,
        lanes: usize,
        reduction: DividedReduction,
    ) -> Work<(Vec<Lent<f32>>, Lent<f32>)> {
        self.submit((pieces, output), move |group, (pieces, output)| {
            let lens: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
            group.check_pieces(&lens, output.len(), lanes)?;
            let pieces: Vec<&[f32]> = pieces.iter().map(|piece| &**piece).collect();
            let lanes = Lanes { ranks: group.world_size(), each: lanes };
            group.run_blocking(|backend| {
                backend.reduce_scatter_of_pieces(&pieces, output, lanes, reduction)
            })
        })
    }

    fn submit_all_gather(
        &self,
        input: Lent<f32>,
        output: Lent<f32>,
    ) -> Work<(Lent<f32>, Lent<f32>)> {
        self.submit((input, output), |group, (input, output)| group.all_gather(input, output))
    }

    fn submit_all_gather_in_place(&self, data: Lent<f32>) -> Work<Lent<f32>> {
        self.submit(data, |group, data| {
            let input = data[own_part(group, data.len())].to_vec();
            group.all_gather(&input, data)
        })
    }

    fn submit_broadcast(&self, data: Lent<f32>, root: usize) -> Work<Lent<f32>> {
        self.submit(data, move |group, data| group.broadcast(&mut **data, root))
    }
}

impl GradientCollectives<f32> for LateGroup {
    type Scratch = Vec<f32>;

    fn alloc_scratch(&self, len: usize) -> Result<Vec<f32>> {
        self.group.alloc_scratch(len)
    }

    fn zero_scratch(&self, gradient: &mut Vec<f32>) -> Result<()> {
        self.group.zero_scratch(gradient)
    }

    fn zero(&self, gradient: &mut SharedBuffer<f32>, range: &Range<usize>) -> Result<()> {
        self.group.zero(gradient, range)
    }

    fn add_scratch(&self, older: &Vec<f32>, newer: &mut Vec<f32>) -> Result<()> {
        self.group.add_scratch(older, newer)
    }

    fn add(
        &self,
        older: &Vec<f32>,
        newer: &mut SharedBuffer<f32>,
        range: &Range<usize>,
    ) -> Result<()> {
        if self.fails_at == Some(range.start) {
            return Err(Error::BadArgument("the GPU reported an error: out of range".to_owned()));
        }
        self.group.add(older, newer, range)
    }

    fn divide(
        &self,
        gradient: &mut SharedBuffer<f32>,
        range: &Range<usize>,
        divisor: u64,
    ) -> Result<()> {
        self.group.divide(gradient, range, divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{DdpOptions, DistributedDataParallel, Layout};

    /// Bits of the mean gradients of three steps.
    fn train<C>(collectives: &C) -> Result<Vec<u32>, Error>
    where
        C: GradientCollectives<f32, Scratch = Vec<f32>, Buffer = SharedBuffer<f32>>,
    {
        let layout = Layout::new([("a", 70), ("b", 5), ("c", 300)]);
        let options = DdpOptions { accumulate: 3, first_bucket_bytes: 16, bucket_bytes: 400 };
        let mut ddp = DistributedDataParallel::new(collectives, &layout, options)?;
        let mut bits = Vec::new();
        for step in 0..3 {
            for micro_batch in 0..options.accumulate {
                let lane = collectives.as_ref().rank() * options.accumulate + micro_batch;
                ddp.micro_batch(|gradient| {
                    for (_, range) in layout.tensors().rev() {
                        for (value, at) in
                            gradient.range(range.clone()).iter_mut().zip(range.clone())
                        {
                            *value = 1.0 / (1 + at * 7 + lane * 1009 + step * 13) as f32;
                        }
                        gradient.ready(range);
                    }
                })?;
            }
            bits.extend(ddp.reduce()?.iter().map(|value| value.to_bits()));
        }
        Ok(bits)
    }

    #[test]
    fn data_parallel_training_needs_no_operation_to_be_early() -> Result<(), Error> {
        let early = Group::on_threads(3, train)?;
        let late = Group::on_threads(3, |group| train(&LateGroup::new(group.clone())))?;
        assert_eq!(late, early);
        Ok(())
    }

    #[test]
    fn failing_device_is_an_error_on_every_rank() {
        let outcomes = Group::on_threads(2, |group| {
            let group = match group.rank() {
                0 => LateGroup::new(group.clone()),
                _ => LateGroup::failing_at(group.clone(), 0),
            };
            Ok(train(&group).map(drop).map_err(|error| error.to_string()))
        });
        let [first, second] = outcomes.expect("errors are results here").try_into().expect("two");
        let why = "the GPU reported an error: out of range";
        let (first, second) = (first.expect_err("its peer failed"), second.expect_err("it failed"));
        assert!(first.contains("rank 1 aborted the group") && first.contains(why), "{first}");
        assert!(second.ends_with(why), "{second}");
    }

    /// Bits of this rank's part of a sum in place, of all parts after they were gathered, and of its part of a sum
    /// of pieces.
    fn shard<C>(collectives: &C) -> Result<Vec<u32>, Error>
    where
        C: Collectives<f32, Buffer = SharedBuffer<f32>, Lent = Lent<f32>>,
    {
        let (rank, world) = (collectives.as_ref().rank(), collectives.as_ref().world_size());
        let lanes = Lanes { ranks: world, each: 3 };
        let pieces = lanes.pieces_of(rank).len();
        let mut memory = collectives.alloc_shared((1 + pieces) * 8 * world + 8)?;
        let mut ranges = (0..=pieces).map(|at| at * 8 * world..(at + 1) * 8 * world);
        let mut lend = |range: Range<usize>| {
            let mut lent = memory.lend(&range);
            for (value, at) in lent.iter_mut().zip(range) {
                *value = 1.0 / (1 + at * 7 + rank * 1009) as f32;
            }
            lent
        };
        let data = lend(ranges.next().expect("there is a first range"));
        let pieces: Vec<_> = ranges.map(&mut lend).collect();
        let output = lend((1 + pieces.len()) * 8 * world..(1 + pieces.len()) * 8 * world + 8);
        let mean = DividedReduction::mean_of(world as u64);
        let reduced = collectives.submit_reduce_scatter_in_place(data, mean);
        let sum = DividedReduction::SUM;
        let summed = collectives.submit_reduce_scatter_of_pieces(pieces, output, 3, sum);
        let data = reduced.wait()?;
        let own = data[rank * 8..(rank + 1) * 8].to_vec();
        let all = collectives.submit_all_gather_in_place(data).wait()?;
        let (_pieces, output) = summed.wait()?;
        Ok([&own[..], &all, &output].concat().iter().map(|value| value.to_bits()).collect())
    }

    #[test]
    fn late_group_shards_like_the_group_behind_it() -> Result<(), Error> {
        let early = Group::on_threads(3, shard)?;
        let late = Group::on_threads(3, |group| shard(&LateGroup::new(group.clone())))?;
        assert_eq!(late, early);
        let group = LateGroup::new(Group::single()?);
        let mut memory = group.alloc_shared(4)?;
        let (piece, output) = (memory.lend(&(0..3)), memory.lend(&(3..4)));
        let sum = DividedReduction::SUM;
        let work = group.submit_reduce_scatter_of_pieces(vec![piece], output, 3, sum);
        let error = work.wait().map(drop).expect_err("the piece has three parts of one rank");
        assert!(error.to_string().ends_with("expected 1 × 1 elements, got 3"), "{error}");
        Ok(())
    }

    #[test]
    fn step_of_another_plan_is_an_error_that_names_the_rank() {
        let outcome = Group::on_threads(2, |group| {
            let group = LateGroup::new(group.clone());
            let ddp = |len| {
                let layout = Layout::new([("weight", len)]);
                DistributedDataParallel::<f32, _>::new(&group, &layout, DdpOptions::default())
            };
            let (mut generator, mut critic) = (ddp(8)?, ddp(5)?);
            let is_first = group.as_ref().rank() == 0;
            let ddp = if is_first { &mut generator } else { &mut critic };
            ddp.micro_batch(|gradient| gradient.flat().fill(1.0))?;
            Ok(ddp.reduce().map(drop)?)
        });
        let error = outcome.expect_err("ranks are in different steps").to_string();
        // A rank that is aborted by the other before it has compared the steps repeats its error.
        assert!(error.contains("is in step 1 of another plan, this rank in step 1"), "{error}");
    }
}

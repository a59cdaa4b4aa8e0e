//! Gradients of a rank: sums over micro-batches, and their reductions in flight. They lie where a
//! [`GradientExecutor`] keeps them; reductions go through the memory of the host, unless the executor reduces itself.

use std::collections::VecDeque;
use std::ops::Range;

use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::Dtype;
use crate::runtime::engine::buffers::{Capacity, UnitBuffers};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::engine::shards::reduction::{
    GradientOptions, ReductionInFlight, UnitReduction,
};
use crate::runtime::engine::shards::sections::OwnedParts;
use crate::runtime::flat::accumulate::BinaryCounter;
use crate::runtime::parallel::zero::lanes::LaneOrder;

type Result<T> = std::result::Result<T, EngineError>;

/// Memory and arithmetic of gradients. The store decides what is added when.
pub(crate) trait GradientExecutor {
    /// Gradient of a unit, with padding, which can be reduced.
    type Unit: Capacity;
    /// Numbers of this rank alone.
    type Sum;

    /// Allocates a gradient of this many elements, whose content is not defined.
    fn alloc(&mut self, len: usize) -> Result<Self::Unit>;

    /// Fills the first `len` elements with zeros.
    fn clear(&mut self, unit: &mut Self::Unit, len: usize) -> Result<()>;

    /// Provides memory for `len` numbers, whose content is not defined: what is not used any more, if there is some.
    fn numbers(&mut self, spare: Option<Self::Sum>, len: usize) -> Result<Self::Sum>;

    /// Replaces all numbers by zeros.
    fn clear_sum(&mut self, sum: &mut Self::Sum) -> Result<()>;

    /// Provides `len` zeros.
    fn zeros(&mut self, spare: Option<Self::Sum>, len: usize) -> Result<Self::Sum> {
        let mut zeros = self.numbers(spare, len)?;
        self.clear_sum(&mut zeros)?;
        Ok(zeros)
    }

    /// Replaces `newer` by `older + newer`.
    fn add(&self, older: &Self::Sum, newer: &mut Self::Sum) -> Result<()>;

    /// Replaces the first elements of `newer` by `older + newer`.
    fn add_to_unit(&self, older: &Self::Sum, newer: &mut Self::Unit) -> Result<()>;

    /// Copies a range of a unit, which is as long as `to`.
    fn copy_part(
        &self,
        unit: &mut Self::Unit,
        range: &Range<usize>,
        to: &mut Self::Sum,
    ) -> Result<()>;

    /// Copies numbers to the begin of a unit.
    fn copy_sum(&self, sum: &Self::Sum, unit: &mut Self::Unit) -> Result<()>;

    /// Divides the first `len` elements of a unit.
    fn divide_unit(&self, unit: &mut Self::Unit, len: usize, divisor: u64) -> Result<()>;

    /// Divides numbers.
    fn divide(&self, sum: &mut Self::Sum, divisor: u64) -> Result<()>;

    /// Rounds the first `len` elements of an open gradient to a type; 32-bit types change nothing.
    fn round(&mut self, open: OpenGradient<'_, Self>, len: usize, dtype: Dtype) -> Result<()>;

    /// The computations of a unit's gradient have been submitted.
    fn close(&mut self, unit: &mut Self::Unit) -> Result<()>;

    /// Starts to reduce a closed unit; `None` if that needs nothing more of the host.
    fn start(
        &mut self,
        unit: &mut Self::Unit,
        reduction: &UnitReduction<'_>,
    ) -> Result<Option<ReductionInFlight>> {
        self.start_on_host(unit, reduction).map(Some)
    }

    /// Starts to reduce a closed unit in the memory of the host.
    fn start_on_host(
        &mut self,
        unit: &mut Self::Unit,
        reduction: &UnitReduction<'_>,
    ) -> Result<ReductionInFlight> {
        self.to_host(unit, reduction.shards.padded_len())?;
        Ok(reduction.start(self.host(unit)))
    }

    /// What follows needs a reduction that did not need the host. `own` is what this rank needs of the unit, which is
    /// divided then.
    fn finish(&mut self, unit: &mut Self::Unit, own: &Range<usize>, divisor: u64) -> Result<()> {
        let _ = (unit, own, divisor);
        unreachable!("reductions of this memory need the host")
    }

    /// Provides the first `len` elements of a closed unit in the memory of the host.
    fn to_host(&mut self, unit: &mut Self::Unit, len: usize) -> Result<()>;

    /// Provides memory of the host for the first `len` elements, whose content is not defined.
    fn for_host(&mut self, unit: &mut Self::Unit, len: usize) -> Result<()>;

    /// Memory of the host, which was provided.
    fn host<'u>(&self, unit: &'u mut Self::Unit) -> &'u mut SharedBuffer<f32>;

    /// Takes a range back from the memory of the host, which is not used any more.
    fn take_back(&mut self, unit: &mut Self::Unit, range: &Range<usize>) -> Result<()>;
}

/// Gradient of a micro-batch, to which a backward pass adds.
pub(crate) enum OpenGradient<'a, E: GradientExecutor + ?Sized> {
    /// In memory that is reduced.
    Unit(&'a mut E::Unit),
    /// In memory of this rank alone.
    Sum(&'a mut E::Sum),
}

/// Part of a gradient that this rank updates.
pub(crate) enum OwnGradient<'a, E: GradientExecutor> {
    /// A range of the whole unit.
    Unit(&'a mut E::Unit, Range<usize>),
    /// All of these numbers.
    Sum(&'a mut E::Sum),
}

/// Gradients of all units.
pub(crate) struct GradientStore<E: GradientExecutor> {
    pub(crate) executor: E,
    groups: UnitGroups,
    parts: OwnedParts,
    options: GradientOptions,
    /// Number of additions after every lane of this rank, for [`LaneOrder::Subtrees`].
    additions: Vec<usize>,
    units: Vec<UnitGradient<E>>,
    /// Units whose gradients are complete and not yet submitted to their reduction, in the order of the plan; at
    /// most all units.
    due: VecDeque<usize>,
    /// Units that are being reduced in their shard groups, in the order of their start; at most all units.
    in_shard_groups: VecDeque<usize>,
    /// Buffers for the gradient of a micro-batch, and for the sums of subtrees.
    buffers: UnitBuffers<E::Unit>,
}

/// Gradient of a unit.
struct UnitGradient<E: GradientExecutor> {
    /// Sum over lanes of the part that this rank updates, then their mean.
    own: Own<E>,
    /// Gradient of the micro-batch that is being computed or reduced.
    open: Option<Open<E>>,
    /// Sums of earlier micro-batches.
    earlier: BinaryCounter<E::Sum>,
    /// Sums of subtrees of lanes, oldest first, for [`LaneOrder::Subtrees`], and the number of lanes in them.
    subtrees: Vec<E::Sum>,
    micro_batches: usize,
}

/// Memory of the part that a rank updates.
enum Own<E: GradientExecutor> {
    /// In a buffer for the whole unit, which is reduced once a step.
    Whole(E::Unit),
    /// In memory of its own, to which the reduction of every micro-batch is added.
    Part(E::Sum),
}

/// Gradient of a micro-batch.
enum Open<E: GradientExecutor> {
    /// In the buffer [`Own::Whole`].
    Whole,
    /// In a buffer that is reduced.
    Buffer(E::Unit),
    /// In memory of this rank alone, because it is reduced with later micro-batches.
    Private(E::Sum),
    /// The reduction is in flight; the buffer is `None` if it is [`Own::Whole`].
    /// The reduction itself is `None` if it needs nothing more of the host.
    Reducing(Option<ReductionInFlight>, Option<E::Unit>),
    /// The reduction of subtrees into [`Own::Whole`] is in flight.
    ReducingSubtrees(Work<(Vec<Lent<f32>>, Lent<f32>)>, Vec<E::Unit>),
}

impl<E: GradientExecutor> Own<E> {
    /// The buffer of a gradient: its own, or the whole unit.
    fn buffer<'a>(&'a mut self, buffer: &'a mut Option<E::Unit>) -> &'a mut E::Unit {
        match (buffer, self) {
            (Some(buffer), _) | (None, Self::Whole(buffer)) => buffer,
            (None, Self::Part(_)) => unreachable!("parts are reduced in buffers"),
        }
    }
}

impl<E: GradientExecutor> GradientStore<E> {
    /// Allocates the gradients of all units.
    pub(crate) fn new(
        mut executor: E,
        groups: &UnitGroups,
        parts: &OwnedParts,
        options: GradientOptions,
    ) -> Result<Self> {
        let mut units = Vec::new();
        for (unit, shards) in parts.layout.units().iter().enumerate() {
            let own = if options.lanes.reduces_every_micro_batch() {
                Own::Part(executor.zeros(None, parts.own_range(unit).len())?)
            } else {
                Own::Whole(executor.alloc(shards.padded_len())?)
            };
            let earlier = BinaryCounter::new();
            units.push(UnitGradient {
                own,
                open: None,
                earlier,
                subtrees: Vec::new(),
                micro_batches: 0,
            });
        }
        let additions = match options.lanes.order() {
            LaneOrder::RankMajor | LaneOrder::MicroBatchMajor => Vec::new(),
            LaneOrder::Subtrees => options.lanes.tree().additions_of(groups.all.rank()),
        };
        let (groups, parts) = (groups.clone(), parts.clone());
        let (due, in_shard_groups) = (VecDeque::new(), VecDeque::new());
        let buffers = UnitBuffers::new();
        Ok(Self {
            executor,
            groups,
            parts,
            options,
            additions,
            units,
            due,
            in_shard_groups,
            buffers,
        })
    }

    /// Provides zeros for the gradient of a micro-batch.
    pub(crate) fn open(&mut self, unit: usize, is_last: bool) -> Result<()> {
        let (len, padded) =
            (self.parts.layout.units()[unit].len, self.parts.layout.padded_len(unit));
        let Self { executor, units, additions, buffers, .. } = self;
        let of_unit = &mut units[unit];
        let open = match &mut of_unit.own {
            Own::Whole(buffer) if is_last && additions.is_empty() => {
                executor.clear(buffer, padded)?;
                Open::Whole
            }
            Own::Whole(_) => Open::Private(executor.zeros(of_unit.earlier.take_spare(), len)?),
            Own::Part(_) => {
                let mut buffer = buffers.take(padded, |len| executor.alloc(len))?;
                executor.clear(&mut buffer, padded)?;
                Open::Buffer(buffer)
            }
        };
        of_unit.open = Some(open);
        Ok(())
    }

    /// The gradients of several units, which are open, to add to.
    pub(crate) fn open_units<'s>(
        &'s mut self,
        units: &[usize],
    ) -> impl Iterator<Item = (usize, OpenGradient<'s, E>)> {
        let all = self.units.iter_mut().enumerate().filter(|(unit, _)| units.contains(unit));
        all.map(|(unit, of_unit)| {
            let open = match (of_unit.open.as_mut(), &mut of_unit.own) {
                (Some(Open::Whole), Own::Whole(buffer)) | (Some(Open::Buffer(buffer)), _) => {
                    OpenGradient::Unit(buffer)
                }
                (Some(Open::Private(private)), _) => OpenGradient::Sum(private),
                _ => panic!("the gradient of unit {unit} is not open"),
            };
            (unit, open)
        })
    }

    /// The gradient of a unit is complete: its reduction is due, or it is kept for the last micro-batch.
    pub(crate) fn close(&mut self, unit: usize, is_last: bool) -> Result<()> {
        self.round(unit)?;
        if !self.additions.is_empty() {
            return self.add_to_subtrees(unit, is_last);
        }
        let is_alone = self.groups.all.world_size() == 1;
        let len = self.parts.layout.units()[unit].len;
        let divisor = self.options.divisor();
        let Self { executor, units, due, .. } = self;
        let UnitGradient { own, open, earlier, .. } = &mut units[unit];
        let buffer = match (open.as_mut(), own) {
            (Some(Open::Private(_)), _) => {
                let Some(Open::Private(private)) = open.take() else { unreachable!() };
                return earlier.try_push(private, |older, newer| executor.add(older, newer));
            }
            (Some(Open::Whole), Own::Whole(buffer)) => {
                earlier.sums().try_for_each(|older| executor.add_to_unit(older, buffer))?;
                earlier.clear();
                buffer
            }
            (Some(Open::Buffer(buffer)), _) => buffer,
            _ => panic!("the gradient of unit {unit} is not open"),
        };
        if !is_alone {
            due.push_back(unit);
            return executor.close(buffer);
        }
        executor.divide_unit(buffer, len, divisor)
    }

    /// Rounds the gradient of a micro-batch.
    fn round(&mut self, unit: usize) -> Result<()> {
        let (dtype, len) = (self.options.rounding, self.parts.layout.units()[unit].len);
        let UnitGradient { own, open, .. } = &mut self.units[unit];
        let open = match (open.as_mut(), own) {
            (Some(Open::Whole), Own::Whole(buffer)) | (Some(Open::Buffer(buffer)), _) => {
                OpenGradient::Unit(buffer)
            }
            (Some(Open::Private(private)), _) => OpenGradient::Sum(private),
            _ => panic!("the gradient of unit {unit} is not open"),
        };
        self.executor.round(open, len, dtype)
    }

    /// Begins the reductions that are due. All ranks call it at the same steps of their plans.
    pub(crate) fn start_due(&mut self) -> Result<()> {
        while let Some(unit) = self.due.pop_front() {
            let Self { executor, units, groups, parts, options, .. } = self;
            let shards = &parts.layout.units()[unit];
            let reduction = UnitReduction { groups, unit, shards, options };
            let UnitGradient { own, open, .. } = &mut units[unit];
            let mut buffer = match open.take() {
                Some(Open::Buffer(buffer)) => Some(buffer),
                Some(Open::Whole) => None,
                _ => unreachable!("a unit in this queue is complete"),
            };
            let work = executor.start(own.buffer(&mut buffer), &reduction)?;
            if let Some(ReductionInFlight::ShardGroup(_)) = work {
                self.in_shard_groups.push_back(unit);
            }
            *open = Some(Open::Reducing(work, buffer));
        }
        self.start_last_reductions(None)
    }

    /// Begins to add the sums of all shard groups for the units whose own shard group has finished. Every rank does so
    /// in the order in which the units were started. Waits for this unit, and for those before it.
    fn start_last_reductions(&mut self, waits_for: Option<usize>) -> Result<()> {
        let mut needed = match waits_for {
            Some(unit) => {
                self.in_shard_groups.iter().position(|of| *of == unit).map_or(0, |at| at + 1)
            }
            None => 0,
        };
        while let Some(unit) = self.in_shard_groups.front().copied() {
            let Self { executor, units, groups, parts, options, .. } = self;
            let shards = &parts.layout.units()[unit];
            let reduction = UnitReduction { groups, unit, shards, options };
            let UnitGradient { own, open, .. } = &mut units[unit];
            let Some(Open::Reducing(Some(mut work), mut buffer)) = open.take() else {
                unreachable!("a unit in this queue is being reduced")
            };
            let is_due = 0 < needed || work.is_completed();
            if is_due {
                let memory = executor.host(own.buffer(&mut buffer));
                work = reduction.start_last(memory, work)?;
            }
            *open = Some(Open::Reducing(Some(work), buffer));
            if !is_due {
                break;
            }
            needed = needed.saturating_sub(1);
            self.in_shard_groups.pop_front();
        }
        Ok(())
    }

    /// Adds a micro-batch to the sums of subtrees; after the last one, begins to reduce them.
    fn add_to_subtrees(&mut self, unit: usize, is_last: bool) -> Result<()> {
        let Self { executor, units, additions, .. } = self;
        let UnitGradient { open, earlier, subtrees, micro_batches, .. } = &mut units[unit];
        let Some(Open::Private(private)) = open.take() else {
            panic!("the gradient of unit {unit} is not open")
        };
        let additions = additions[*micro_batches];
        *micro_batches = if is_last { 0 } else { *micro_batches + 1 };
        subtrees.push(private);
        for _ in 0..additions {
            let mut newer = subtrees.pop().expect("an addition has two operands");
            let older = subtrees.pop().expect("an addition has two operands");
            executor.add(&older, &mut newer)?;
            earlier.keep(older);
            subtrees.push(newer);
        }
        if is_last { self.reduce_subtrees(unit) } else { Ok(()) }
    }

    fn reduce_subtrees(&mut self, unit: usize) -> Result<()> {
        let padded = self.parts.layout.padded_len(unit);
        let shard = self.parts.layout.units()[unit].shard(self.groups.all.rank());
        let Self { executor, units, buffers: pool, .. } = self;
        let mut buffers = Vec::new();
        for sum in std::mem::take(&mut units[unit].subtrees) {
            let mut buffer = pool.take(padded, |len| executor.alloc(len))?;
            executor.clear(&mut buffer, padded)?;
            executor.copy_sum(&sum, &mut buffer)?;
            executor.close(&mut buffer)?;
            executor.to_host(&mut buffer, padded)?;
            buffers.push(buffer);
            units[unit].earlier.keep(sum);
        }
        let lend = |buffer: &mut E::Unit| executor.host(buffer).lend(&(0..padded));
        let pieces = buffers.iter_mut().map(lend).collect();
        let UnitGradient { own: Own::Whole(whole), open, .. } = &mut units[unit] else {
            unreachable!("subtrees are reduced once a step")
        };
        executor.for_host(whole, padded)?;
        let output = executor.host(whole).lend(&shard);
        let lanes = self.options.lanes;
        let mean = DividedReduction::mean_of(lanes.count() as u64);
        let each = lanes.accumulate();
        let work = self.groups.all.submit_reduce_scatter_of_pieces(pieces, output, each, mean);
        *open = Some(Open::ReducingSubtrees(work, buffers));
        Ok(())
    }

    /// Waits for the reduction of subtrees. If every rank updates the whole unit, collects the parts.
    fn finish_subtrees(&mut self, unit: usize) -> Result<()> {
        let (range, padded) = (self.parts.own_range(unit), self.parts.layout.padded_len(unit));
        let Self { executor, units, buffers: pool, groups, options, .. } = self;
        let UnitGradient { own: Own::Whole(whole), open, .. } = &mut units[unit] else {
            return Ok(());
        };
        let Some(Open::ReducingSubtrees(work, buffers)) = open.take() else { return Ok(()) };
        let (pieces, output) = work.wait()?;
        executor.host(whole).restore(output);
        for (mut buffer, piece) in buffers.into_iter().zip(pieces) {
            executor.host(&mut buffer).restore(piece);
            executor.take_back(&mut buffer, &(0..0))?;
            pool.keep(buffer);
        }
        if !options.sharding.divides_optimizer() {
            let all = executor.host(whole).lend(&(0..padded));
            let all = groups.all.submit_all_gather_in_place(all).wait()?;
            executor.host(whole).restore(all);
        }
        executor.take_back(whole, &range)
    }

    /// Waits for the reduction of a unit, and adds it to the sum of the step.
    pub(crate) fn finish_reduce(&mut self, unit: usize, is_last: bool) -> Result<()> {
        if !self.additions.is_empty() {
            return self.finish_subtrees(unit);
        }
        // All that is due can run while this rank waits.
        self.start_due()?;
        self.start_last_reductions(Some(unit))?;
        let range = self.parts.own_range(unit);
        let divisor = self.options.divisor();
        let UnitGradient { own, open, .. } = &mut self.units[unit];
        let buffer = match open.take() {
            Some(Open::Reducing(work, mut buffer)) => {
                let memory = own.buffer(&mut buffer);
                if let Some(work) = work {
                    self.executor.host(memory).restore(work.wait()?);
                    self.executor.take_back(memory, &range)?;
                } else {
                    self.executor.finish(memory, &range, divisor)?;
                }
                buffer
            }
            Some(Open::Buffer(buffer)) => Some(buffer),
            Some(Open::Whole | Open::Private(_) | Open::ReducingSubtrees(..)) | None => None,
        };
        match buffer {
            Some(buffer) => self.add_part(unit, buffer, is_last),
            None => Ok(()),
        }
    }

    /// Adds this rank's part of the sum over all ranks to those of earlier micro-batches.
    fn add_part(&mut self, unit: usize, mut buffer: E::Unit, is_last: bool) -> Result<()> {
        let range = self.parts.own_range(unit);
        let Self { executor, units, buffers, options, .. } = self;
        let UnitGradient { own, earlier, .. } = &mut units[unit];
        let Own::Part(own) = own else { unreachable!("only parts have buffers") };
        if is_last {
            executor.copy_part(&mut buffer, &range, own)?;
            earlier.sums().try_for_each(|older| executor.add(older, own))?;
            earlier.clear();
            executor.divide(own, options.lanes.count() as u64)?;
        } else {
            let mut sum = executor.numbers(earlier.take_spare(), range.len())?;
            executor.copy_part(&mut buffer, &range, &mut sum)?;
            earlier.try_push(sum, |older, newer| executor.add(older, newer))?;
        }
        buffers.keep(buffer);
        Ok(())
    }

    /// Mean gradient of the part of a unit that this rank updates.
    pub(crate) fn own(&mut self, unit: usize) -> OwnGradient<'_, E> {
        let range = self.parts.own_range(unit);
        match &mut self.units[unit].own {
            Own::Whole(buffer) => OwnGradient::Unit(buffer, range),
            Own::Part(own) => OwnGradient::Sum(own),
        }
    }
}

//! Gradients of a rank in host memory: sums over micro-batches, and their reductions in flight.

use std::collections::VecDeque;
use std::ops::Range;

use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::engine::buffers::UnitBuffers;
use crate::runtime::engine::host::groups::UnitGroups;
use crate::runtime::engine::host::reduction::{GradientOptions, ReductionInFlight, UnitReduction};
use crate::runtime::engine::host::rounding::round_to;
use crate::runtime::error::Result;
use crate::runtime::flat::accumulate::BinaryCounter;
use crate::runtime::parallel::zero::lanes::LaneOrder;
use crate::runtime::parallel::zero::shard_ranges::ShardLayout;

/// Gradients of all units.
pub(super) struct GradientStore {
    groups: UnitGroups,
    layout: ShardLayout,
    options: GradientOptions,
    /// Number of additions after every lane of this rank, for [`LaneOrder::Subtrees`].
    additions: Vec<usize>,
    units: Vec<UnitGradient>,
    /// Units that are being reduced in their shard groups, in the order of their start; at most all units.
    in_shard_groups: VecDeque<usize>,
    /// Buffers for the gradient of a micro-batch.
    buffers: UnitBuffers<SharedBuffer<f32>>,
}

/// Gradient of a unit.
struct UnitGradient {
    /// Sum over lanes of the part that this rank updates, then their mean.
    own: Own,
    /// Gradient of the micro-batch that is being computed or reduced.
    open: Option<Open>,
    /// Sums of earlier micro-batches.
    earlier: BinaryCounter<Vec<f32>>,
    /// Sums of subtrees of lanes, oldest first, for [`LaneOrder::Subtrees`], and the number of lanes in them.
    subtrees: Vec<Vec<f32>>,
    micro_batches: usize,
}

/// Memory of the part that a rank updates.
enum Own {
    /// In a buffer for the whole unit, which is reduced once a step.
    Whole(SharedBuffer<f32>),
    /// In memory of its own, to which the reduction of every micro-batch is added.
    Part(Vec<f32>),
}

/// Gradient of a micro-batch.
enum Open {
    /// In the buffer [`Own::Whole`].
    Whole,
    /// In a buffer that is reduced.
    Buffer(SharedBuffer<f32>),
    /// In memory of this rank alone, because it is reduced with later micro-batches.
    Private(Vec<f32>),
    /// The reduction is in flight; the buffer is `None` if it is [`Own::Whole`].
    Reducing(ReductionInFlight, Option<SharedBuffer<f32>>),
    /// The reduction of subtrees into [`Own::Whole`] is in flight.
    ReducingSubtrees(Work<(Vec<Lent<f32>>, Lent<f32>)>, Vec<SharedBuffer<f32>>),
}

impl GradientStore {
    /// Allocates the gradients of all units.
    pub(super) fn new(
        groups: &UnitGroups,
        layout: &ShardLayout,
        options: GradientOptions,
    ) -> Result<Self> {
        let mut units = Vec::new();
        for (unit, shards) in layout.units().iter().enumerate() {
            let own = if options.lanes.reduces_every_micro_batch() {
                let is_divided = options.sharding.divides_optimizer();
                let owned = shards.owned(groups.all.rank()).len();
                Own::Part(vec![0.0; if is_divided { owned } else { shards.len }])
            } else {
                Own::Whole(groups.all.alloc_shared(layout.padded_len(unit))?)
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
        let (groups, layout) = (groups.clone(), layout.clone());
        let (in_shard_groups, buffers) = (VecDeque::new(), UnitBuffers::new());
        Ok(Self { groups, layout, options, additions, units, in_shard_groups, buffers })
    }

    /// Part of a unit that this rank updates.
    pub(super) fn own_range(&self, unit: usize) -> Range<usize> {
        let shards = &self.layout.units()[unit];
        if self.options.sharding.divides_optimizer() {
            shards.owned(self.groups.all.rank())
        } else {
            0..shards.len
        }
    }

    /// Provides zeros for the gradient of a micro-batch.
    pub(super) fn open(&mut self, unit: usize, is_last: bool) -> Result<()> {
        let len = self.layout.units()[unit].len;
        let of_unit = &mut self.units[unit];
        let open = match &mut of_unit.own {
            Own::Whole(buffer) if is_last && self.additions.is_empty() => {
                buffer.slice_mut(&(0..self.layout.padded_len(unit))).fill(0.0);
                Open::Whole
            }
            Own::Whole(_) => {
                let mut private = of_unit.earlier.take_spare().unwrap_or_default();
                private.clear();
                private.resize(len, 0.0);
                Open::Private(private)
            }
            Own::Part(_) => {
                let padded = self.layout.padded_len(unit);
                let allocate = |len| self.groups.all.alloc_shared(len);
                let mut buffer = self.buffers.take(padded, allocate)?;
                buffer.slice_mut(&(0..padded)).fill(0.0);
                Open::Buffer(buffer)
            }
        };
        of_unit.open = Some(open);
        Ok(())
    }

    /// The gradients of several units, which are open, to add to.
    pub(super) fn open_units(&mut self, units: &[usize]) -> Vec<(usize, &mut [f32])> {
        let layout = &self.layout;
        let all = self.units.iter_mut().enumerate().filter(|(unit, _)| units.contains(unit));
        let elements = all.map(|(unit, of_unit)| {
            let range = 0..layout.units()[unit].len;
            let elements = match (of_unit.open.as_mut(), &mut of_unit.own) {
                (Some(Open::Whole), Own::Whole(buffer)) | (Some(Open::Buffer(buffer)), _) => {
                    buffer.slice_mut(&range)
                }
                (Some(Open::Private(private)), _) => &mut private[range],
                _ => panic!("the gradient of unit {unit} is not open"),
            };
            (unit, elements)
        });
        elements.collect()
    }

    /// The gradient of a unit is complete: begins its reduction, or keeps it for the last micro-batch.
    pub(super) fn start_reduce(&mut self, unit: usize, is_last: bool) -> Result<()> {
        let rounding = self.options.rounding;
        for (_, elements) in self.open_units(&[unit]) {
            round_to(elements, rounding);
        }
        if !self.additions.is_empty() {
            return self.add_to_subtrees(unit, is_last);
        }
        let UnitGradient { own, open, earlier, .. } = &mut self.units[unit];
        let reduction = UnitReduction {
            groups: &self.groups,
            shards: &self.layout.units()[unit],
            options: &self.options,
        };
        *open = match (open.take(), own) {
            (Some(Open::Private(private)), _) => {
                earlier.push(private, add);
                None
            }
            (Some(Open::Whole), Own::Whole(buffer)) => {
                let len = self.layout.units()[unit].len;
                for older in earlier.sums() {
                    f32::combine_right(ReduceOp::Sum, older, buffer.slice_mut(&(0..len)));
                }
                earlier.clear();
                reduction.start(buffer).map(|work| Open::Reducing(work, None))
            }
            (Some(Open::Buffer(mut buffer)), _) => Some(match reduction.start(&mut buffer) {
                Some(work) => Open::Reducing(work, Some(buffer)),
                None => Open::Buffer(buffer),
            }),
            _ => panic!("the gradient of unit {unit} is not open"),
        };
        if let Some(Open::Reducing(ReductionInFlight::ShardGroup(_), _)) = open {
            self.in_shard_groups.push_back(unit);
        }
        Ok(self.start_last_reductions(None)?)
    }

    /// Begins to add the sums of all shard groups for the units whose own shard group has finished. Every rank does so
    /// in the order in which the units were started. Waits for this unit, and for those before it.
    fn start_last_reductions(&mut self, waits_for: Option<usize>) -> Result<(), CollectiveError> {
        let mut needed = match waits_for {
            Some(unit) => {
                self.in_shard_groups.iter().position(|of| *of == unit).map_or(0, |at| at + 1)
            }
            None => 0,
        };
        while let Some(unit) = self.in_shard_groups.front().copied() {
            let reduction = UnitReduction {
                groups: &self.groups,
                shards: &self.layout.units()[unit],
                options: &self.options,
            };
            let UnitGradient { own, open, .. } = &mut self.units[unit];
            let Some(Open::Reducing(mut work, mut buffer)) = open.take() else {
                unreachable!("a unit in this queue is being reduced")
            };
            let is_due = 0 < needed || work.is_completed();
            if is_due {
                let memory = match (&mut buffer, own) {
                    (Some(buffer), _) | (None, Own::Whole(buffer)) => buffer,
                    (None, Own::Part(_)) => unreachable!("parts are reduced in buffers"),
                };
                work = reduction.start_last(memory, work)?;
            }
            *open = Some(Open::Reducing(work, buffer));
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
        let micro_batch = self.units[unit].micro_batches;
        let UnitGradient { open, earlier, subtrees, micro_batches, .. } = &mut self.units[unit];
        let Some(Open::Private(private)) = open.take() else {
            panic!("the gradient of unit {unit} is not open")
        };
        *micro_batches = if is_last { 0 } else { micro_batch + 1 };
        subtrees.push(private);
        for _ in 0..self.additions[micro_batch] {
            let mut newer = subtrees.pop().expect("an addition has two operands");
            let older = subtrees.pop().expect("an addition has two operands");
            add(&older, &mut newer);
            earlier.keep(older);
            subtrees.push(newer);
        }
        if is_last { self.reduce_subtrees(unit) } else { Ok(()) }
    }

    fn reduce_subtrees(&mut self, unit: usize) -> Result<()> {
        let (len, padded) = (self.layout.units()[unit].len, self.layout.padded_len(unit));
        let shard = self.layout.units()[unit].shard(self.groups.all.rank());
        let mut buffers = Vec::new();
        for sum in std::mem::take(&mut self.units[unit].subtrees) {
            let mut buffer = self.groups.all.alloc_shared(padded)?;
            buffer.slice_mut(&(0..len)).copy_from_slice(&sum);
            buffers.push(buffer);
            self.units[unit].earlier.keep(sum);
        }
        let pieces = buffers.iter_mut().map(|buffer| buffer.lend(&(0..padded))).collect();
        let UnitGradient { own: Own::Whole(whole), open, .. } = &mut self.units[unit] else {
            unreachable!("subtrees are reduced once a step")
        };
        let output = whole.lend(&shard);
        let lanes = self.options.lanes;
        let mean = DividedReduction::mean_of(lanes.count() as u64);
        let each = lanes.accumulate();
        let work = self.groups.all.submit_reduce_scatter_of_pieces(pieces, output, each, mean);
        *open = Some(Open::ReducingSubtrees(work, buffers));
        Ok(())
    }

    /// Waits for the reduction of subtrees. If every rank updates the whole unit, collects the parts.
    fn finish_subtrees(&mut self, unit: usize) -> Result<(), CollectiveError> {
        let UnitGradient { own: Own::Whole(whole), open, .. } = &mut self.units[unit] else {
            return Ok(());
        };
        let Some(Open::ReducingSubtrees(work, mut buffers)) = open.take() else { return Ok(()) };
        let (pieces, output) = work.wait()?;
        whole.restore(output);
        buffers.iter_mut().zip(pieces).for_each(|(buffer, piece)| buffer.restore(piece));
        if !self.options.sharding.divides_optimizer() {
            let all = whole.lend(&(0..self.layout.padded_len(unit)));
            whole.restore(self.groups.all.submit_all_gather_in_place(all).wait()?);
        }
        Ok(())
    }

    /// Waits for the reduction of a unit, and adds it to the sum of the step.
    pub(super) fn finish_reduce(
        &mut self,
        unit: usize,
        is_last: bool,
    ) -> Result<(), CollectiveError> {
        if !self.additions.is_empty() {
            return self.finish_subtrees(unit);
        }
        self.start_last_reductions(Some(unit))?;
        let range = self.own_range(unit);
        let UnitGradient { own, open, earlier, .. } = &mut self.units[unit];
        let buffer = match open.take() {
            Some(Open::Reducing(work, Some(mut buffer))) => {
                buffer.restore(work.wait()?);
                Some(buffer)
            }
            Some(Open::Reducing(work, None)) => {
                let Own::Whole(whole) = own else { unreachable!("parts are reduced in buffers") };
                whole.restore(work.wait()?);
                None
            }
            Some(Open::Buffer(buffer)) => Some(buffer),
            Some(Open::Whole | Open::Private(_) | Open::ReducingSubtrees(..)) | None => None,
        };
        if let (Some(mut buffer), Own::Part(own)) = (buffer, own) {
            let part = buffer.slice_mut(&range);
            if is_last {
                own.copy_from_slice(part);
                for older in earlier.sums() {
                    f32::combine_right(ReduceOp::Sum, older, own);
                }
                earlier.clear();
                f32::divide(own, self.options.lanes.count() as u64);
            } else {
                let mut sum = earlier.take_spare().unwrap_or_default();
                sum.clear();
                sum.extend_from_slice(part);
                earlier.push(sum, add);
            }
            self.buffers.keep(buffer);
        }
        Ok(())
    }

    /// Mean gradient of the part of a unit that this rank updates.
    pub(super) fn own(&mut self, unit: usize) -> &mut [f32] {
        let range = self.own_range(unit);
        match &mut self.units[unit].own {
            Own::Whole(buffer) => buffer.slice_mut(&range),
            Own::Part(own) => own,
        }
    }
}

#[expect(clippy::ptr_arg, reason = "the counter of micro-batches passes its buffers")]
fn add(older: &Vec<f32>, newer: &mut Vec<f32>) {
    f32::combine_right(ReduceOp::Sum, older, newer);
}

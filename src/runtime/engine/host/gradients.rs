//! Gradients of a rank in host memory: sums over micro-batches, and their reductions in flight.

use std::ops::Range;

use crate::runtime::comm::collectives::{Collectives as _};
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Dtype, Element, ReduceOp};
use crate::runtime::engine::host::rounding::round_to;
use crate::runtime::error::Result;
use crate::runtime::flat::accumulate::BinaryCounter;
use crate::runtime::parallel::zero::lanes::Lanes;
use crate::runtime::parallel::zero::sharding::Sharding;
use crate::runtime::parallel::zero::shards::ShardLayout;

/// What the store must know of a step.
pub(super) struct GradientOptions {
    pub(super) lanes: Lanes,
    pub(super) sharding: Sharding,
    /// Type to which the gradient of every lane is rounded before it is added to others.
    pub(super) rounding: Dtype,
}

/// Gradients of all units.
pub(super) struct GradientStore {
    group: Group,
    layout: ShardLayout,
    options: GradientOptions,
    units: Vec<UnitGradient>,
    /// Unused buffers for the gradient of a micro-batch, as long as the longest unit.
    spare: Vec<SharedBuffer<f32>>,
}

/// Gradient of a unit.
struct UnitGradient {
    /// Sum over lanes of the part that this rank updates, then their mean.
    own: Own,
    /// Gradient of the micro-batch that is being computed or reduced.
    open: Option<Open>,
    /// Sums of earlier micro-batches.
    earlier: BinaryCounter<Vec<f32>>,
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
    Reducing(Work<Lent<f32>>, Option<SharedBuffer<f32>>),
}

impl GradientStore {
    /// Allocates the gradients of all units.
    pub(super) fn new(
        group: &Group,
        layout: &ShardLayout,
        options: GradientOptions,
    ) -> Result<Self> {
        let mut units = Vec::new();
        for (unit, shards) in layout.units().iter().enumerate() {
            let own = if options.lanes.reduces_every_micro_batch() {
                let is_divided = options.sharding.divides_optimizer();
                let owned = shards.owned(group.rank()).len();
                Own::Part(vec![0.0; if is_divided { owned } else { shards.len }])
            } else {
                Own::Whole(group.alloc_shared(layout.padded_len(unit))?)
            };
            units.push(UnitGradient { own, open: None, earlier: BinaryCounter::new() });
        }
        Ok(Self { group: group.clone(), layout: layout.clone(), options, units, spare: Vec::new() })
    }

    /// Part of a unit that this rank updates.
    pub(super) fn own_range(&self, unit: usize) -> Range<usize> {
        let shards = &self.layout.units()[unit];
        if self.options.sharding.divides_optimizer() {
            shards.owned(self.group.rank())
        } else {
            0..shards.len
        }
    }

    /// Provides zeros for the gradient of a micro-batch.
    pub(super) fn open(&mut self, unit: usize, is_last: bool) -> Result<()> {
        let len = self.layout.units()[unit].len;
        let of_unit = &mut self.units[unit];
        let open = match &mut of_unit.own {
            Own::Whole(buffer) if is_last => {
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
                let longest = (0..self.layout.units().len()).map(|unit| self.layout.padded_len(unit));
                let mut buffer = match self.spare.pop() {
                    Some(buffer) => buffer,
                    None => self.group.alloc_shared(longest.max().unwrap_or(0))?,
                };
                buffer.slice_mut(&(0..self.layout.padded_len(unit))).fill(0.0);
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
                (Some(Open::Whole), Own::Whole(buffer)) => buffer.slice_mut(&range),
                (Some(Open::Buffer(buffer)), _) => buffer.slice_mut(&range),
                (Some(Open::Private(private)), _) => &mut private[range],
                _ => panic!("the gradient of unit {unit} is not open"),
            };
            (unit, elements)
        });
        elements.collect()
    }

    /// The gradient of a unit is complete: begins its reduction, or keeps it for the last micro-batch.
    pub(super) fn start_reduce(&mut self, unit: usize) {
        let rounding = self.options.rounding;
        for (_, elements) in self.open_units(&[unit]) {
            round_to(elements, rounding);
        }
        let range = 0..self.layout.padded_len(unit);
        let UnitGradient { own, open, earlier } = &mut self.units[unit];
        let reduction = Reduction { group: &self.group, options: &self.options };
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
                reduction.start(buffer, &range).map(|work| Open::Reducing(work, None))
            }
            (Some(Open::Buffer(mut buffer)), _) => {
                Some(match reduction.start(&mut buffer, &range) {
                    Some(work) => Open::Reducing(work, Some(buffer)),
                    None => Open::Buffer(buffer),
                })
            }
            _ => panic!("the gradient of unit {unit} is not open"),
        };
    }

    /// Waits for the reduction of a unit, and adds it to the sum of the step.
    pub(super) fn finish_reduce(
        &mut self,
        unit: usize,
        is_last: bool,
    ) -> Result<(), CollectiveError> {
        let range = self.own_range(unit);
        let UnitGradient { own, open, earlier } = &mut self.units[unit];
        let buffer = match open.take() {
            Some(Open::Reducing(work, buffer)) => {
                let data = work.wait()?;
                match (buffer, &mut *own) {
                    (Some(mut buffer), _) => {
                        buffer.restore(data);
                        Some(buffer)
                    }
                    (None, Own::Whole(buffer)) => {
                        buffer.restore(data);
                        None
                    }
                    (None, Own::Part(_)) => unreachable!("parts are reduced in buffers"),
                }
            }
            Some(Open::Buffer(buffer)) => Some(buffer),
            Some(Open::Whole | Open::Private(_)) | None => None,
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
            self.spare.push(buffer);
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

    /// Discards the sums of all micro-batches, after a failure.
    pub(super) fn discard(&mut self) {
        for unit in &mut self.units {
            unit.earlier.clear();
        }
    }
}

fn add(older: &Vec<f32>, newer: &mut Vec<f32>) {
    f32::combine_right(ReduceOp::Sum, older, newer);
}

/// How gradients are reduced.
struct Reduction<'a> {
    group: &'a Group,
    options: &'a GradientOptions,
}

impl Reduction<'_> {
    /// Starts to reduce a range in place; without other ranks it is done at once.
    fn start(&self, buffer: &mut SharedBuffer<f32>, range: &Range<usize>) -> Option<Work<Lent<f32>>> {
        let Self { group, options } = self;
        let is_last_sum = !options.lanes.reduces_every_micro_batch();
        let divisor = if is_last_sum { options.lanes.count() as u64 } else { 1 };
        if group.world_size() == 1 {
            if is_last_sum {
                f32::divide(buffer.slice_mut(range), divisor);
            }
            return None;
        }
        let reduction = DividedReduction { op: ReduceOp::Sum, divisor };
        let data = buffer.lend(range);
        Some(if options.sharding.divides_optimizer() {
            group.submit_reduce_scatter_in_place(data, reduction)
        } else {
            group.submit_all_reduce(data, reduction, |_| {})
        })
    }
}

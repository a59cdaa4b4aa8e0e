//! Reduction of the gradient of a unit: over all ranks, or over a shard group and then over all shard groups.

use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Dtype, ReduceOp};
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::parallel::zero::lanes::LaneAssignment;
use crate::runtime::parallel::zero::shard_ranges::UnitShards;
use crate::runtime::parallel::zero::stage::Sharding;

/// What the store must know of a step.
pub(crate) struct GradientOptions {
    pub(crate) lanes: LaneAssignment,
    pub(crate) sharding: Sharding,
    /// Type to which the gradient of every lane is rounded before it is added to others.
    pub(crate) rounding: Dtype,
}

impl GradientOptions {
    /// Number by which the sum over all ranks is divided.
    pub(super) fn divisor(&self) -> u64 {
        if self.lanes.reduces_every_micro_batch() { 1 } else { self.lanes.count() as u64 }
    }
}

/// A reduction in flight.
pub(crate) enum ReductionInFlight {
    /// Over the ranks of a shard group; the sums of all shard groups are added next.
    ShardGroup(Work<Lent<f32>>),
    /// The last one, whose result is the gradient.
    Last(Work<Lent<f32>>),
}

impl ReductionInFlight {
    /// Returns whether it has ended.
    pub(crate) fn is_completed(&mut self) -> bool {
        let (Self::ShardGroup(work) | Self::Last(work)) = self;
        work.is_completed()
    }

    /// Waits for its end, and returns the memory.
    pub(crate) fn wait(self) -> Result<Lent<f32>, CollectiveError> {
        let (Self::ShardGroup(work) | Self::Last(work)) = self;
        work.wait()
    }
}

/// How the gradient of a unit is reduced.
pub(crate) struct UnitReduction<'a> {
    pub(crate) groups: &'a UnitGroups,
    /// Number of the unit.
    #[cfg_attr(not(feature = "nccl"), expect(dead_code, reason = "devices name the unit"))]
    pub(crate) unit: usize,
    pub(crate) shards: &'a UnitShards,
    pub(crate) options: &'a GradientOptions,
}

impl UnitReduction<'_> {
    /// Starts to reduce a unit in place, among several ranks.
    pub(crate) fn start(&self, buffer: &mut SharedBuffer<f32>) -> ReductionInFlight {
        let Self { groups, shards, options, .. } = self;
        let data = buffer.lend(&(0..shards.padded_len()));
        match groups.hybrid_of(shards) {
            Some(hybrid) => {
                let sum = DividedReduction { op: ReduceOp::Sum, divisor: 1 };
                let work = hybrid.shard_group.submit_reduce_scatter_in_place(data, sum);
                ReductionInFlight::ShardGroup(work)
            }
            None if options.sharding.divides_optimizer() => {
                let work = groups.all.submit_reduce_scatter_in_place(data, self.last());
                ReductionInFlight::Last(work)
            }
            None => {
                ReductionInFlight::Last(groups.all.submit_all_reduce(data, self.last(), |_| {}))
            }
        }
    }

    /// Waits for the sums of this rank's shard group, and starts to add those of all shard groups.
    pub(crate) fn start_last(
        &self,
        buffer: &mut SharedBuffer<f32>,
        in_flight: ReductionInFlight,
    ) -> Result<ReductionInFlight, CollectiveError> {
        let hybrid =
            self.groups.hybrid_of(self.shards).expect("only hybrid units have two reductions");
        buffer.restore(in_flight.wait()?);
        let data = buffer.lend(&self.shards.part(self.groups.all.rank()));
        let work = hybrid.copies.submit_reduce_scatter_in_place(data, self.last());
        Ok(ReductionInFlight::Last(work))
    }

    /// The reduction whose result is the gradient of the step, or of a micro-batch.
    fn last(&self) -> DividedReduction {
        DividedReduction { op: ReduceOp::Sum, divisor: self.options.divisor() }
    }
}

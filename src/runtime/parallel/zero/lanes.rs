//! [`LaneAssignment`]: which rank computes which lane in which micro-batch.
//!
//! A step of `W` ranks with `A` micro-batches each has `L = W · A` lanes. The mean gradient is the sum over
//! lanes in the order of the canonical tree, so the lanes fix the bits; which rank computes which lane does
//! not. Two orders let a rank add partial sums without a detour:
//!
//! * rank-major, `lane = r · A + a`: if `A` is a power of two, the lanes of a rank are a subtree. The rank
//!   sums them by itself and takes part in one reduction a step.
//! * micro-batch-major, `lane = a · W + r`: if `W` is a power of two, the lanes of a micro-batch are a
//!   subtree. Every micro-batch is reduced into shards, and no rank keeps a whole gradient.

use crate::runtime::parallel::zero::stage::Sharding;
use crate::runtime::schedule::tree::Lanes;

/// Order of the lanes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOrder {
    /// `lane = rank · A + micro_batch`; one reduction a step.
    RankMajor,
    /// `lane = micro_batch · W + rank`; one reduction a micro-batch.
    MicroBatchMajor,
    /// `lane = rank · A + micro_batch`, where neither number is a power of two: every rank keeps the sums of
    /// its maximal subtrees, and all of them are reduced together.
    Subtrees,
}

/// Assignment of lanes to ranks and micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneAssignment {
    world: usize,
    accumulate: usize,
    order: LaneOrder,
}

impl LaneAssignment {
    /// Chooses the order for `world` ranks with `accumulate` micro-batches. Stages that divide the gradients
    /// prefer the order in which no rank keeps a whole gradient, the other stages the one that reduces once.
    ///
    /// # Panics
    /// If a number is 0.
    pub fn new(world: usize, accumulate: usize, sharding: Sharding) -> Self {
        assert!(0 < world && 0 < accumulate, "a step has at least one lane");
        let preferred = if sharding.divides_gradients() {
            [LaneOrder::MicroBatchMajor, LaneOrder::RankMajor]
        } else {
            [LaneOrder::RankMajor, LaneOrder::MicroBatchMajor]
        };
        let is_possible = |order: &LaneOrder| match order {
            LaneOrder::RankMajor => accumulate.is_power_of_two(),
            LaneOrder::MicroBatchMajor => world.is_power_of_two(),
            LaneOrder::Subtrees => true,
        };
        let order = preferred.into_iter().find(is_possible).unwrap_or(LaneOrder::Subtrees);
        Self { world, accumulate, order }
    }

    /// Chooses an order in which the gradients of a step are reduced once, whatever is divided; every rank then
    /// keeps a whole gradient during the step.
    ///
    /// # Panics
    /// If a number is 0.
    pub fn reducing_once(world: usize, accumulate: usize) -> Self {
        assert!(0 < world && 0 < accumulate, "a step has at least one lane");
        let order =
            if accumulate.is_power_of_two() { LaneOrder::RankMajor } else { LaneOrder::Subtrees };
        Self { world, accumulate, order }
    }

    /// Returns the order of the lanes.
    pub fn order(&self) -> LaneOrder {
        self.order
    }

    /// Returns the number of lanes.
    pub fn count(&self) -> usize {
        self.world * self.accumulate
    }

    /// Returns the number of micro-batches of a rank.
    pub fn accumulate(&self) -> usize {
        self.accumulate
    }

    /// Returns the lane of a micro-batch of a rank.
    pub fn lane(&self, rank: usize, micro_batch: usize) -> usize {
        match self.order {
            LaneOrder::RankMajor | LaneOrder::Subtrees => rank * self.accumulate + micro_batch,
            LaneOrder::MicroBatchMajor => micro_batch * self.world + rank,
        }
    }

    /// Lanes of every rank in rank order, for [`LaneOrder::Subtrees`].
    pub(crate) fn tree(&self) -> Lanes {
        Lanes { ranks: self.world, each: self.accumulate }
    }

    /// Whether the gradient of every micro-batch is reduced, instead of one sum a step.
    pub fn reduces_every_micro_batch(&self) -> bool {
        self.order == LaneOrder::MicroBatchMajor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::schedule::tree::split;

    /// Canonical sum of values, as text, so that the shape of the tree is visible.
    fn tree(values: &[String]) -> String {
        if let [value] = values {
            return value.clone();
        }
        let (left, right) = values.split_at(split(values.len()));
        format!("({}+{})", tree(left), tree(right))
    }

    /// The sum that the ranks compute with an order: of their own lanes first, or of a micro-batch first.
    fn sum_in_order(lanes: &LaneAssignment, world: usize) -> String {
        let name = |rank, micro_batch| lanes.lane(rank, micro_batch).to_string();
        let batches = 0..lanes.accumulate();
        let parts: Vec<String> = match lanes.order() {
            LaneOrder::MicroBatchMajor => batches
                .map(|a| tree(&(0..world).map(|rank| name(rank, a)).collect::<Vec<_>>()))
                .collect(),
            LaneOrder::RankMajor => (0..world)
                .map(|rank| tree(&batches.clone().map(|a| name(rank, a)).collect::<Vec<_>>()))
                .collect(),
            LaneOrder::Subtrees => return String::new(),
        };
        tree(&parts)
    }

    #[test]
    fn both_orders_sum_in_the_tree_over_all_lanes() {
        for world in 1..=40 {
            for accumulate in 1..=40 {
                for sharding in Sharding::ALL {
                    let lanes = LaneAssignment::new(world, accumulate, sharding);
                    let all: Vec<String> = (0..lanes.count()).map(|i| i.to_string()).collect();
                    match lanes.order() {
                        LaneOrder::Subtrees => assert!(
                            !world.is_power_of_two() && !accumulate.is_power_of_two(),
                            "{world} × {accumulate}"
                        ),
                        _ => assert_eq!(sum_in_order(&lanes, world), tree(&all)),
                    }
                }
            }
        }
    }

    #[test]
    fn lanes_are_computed_once_each() {
        for (world, accumulate) in [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1), (3, 3)] {
            for sharding in Sharding::ALL {
                let lanes = LaneAssignment::new(world, accumulate, sharding);
                let mut all: Vec<usize> = (0..world)
                    .flat_map(|rank| (0..accumulate).map(move |a| (rank, a)))
                    .map(|(rank, a)| lanes.lane(rank, a))
                    .collect();
                all.sort_unstable();
                assert_eq!(all, (0..lanes.count()).collect::<Vec<_>>());
            }
        }
    }
}

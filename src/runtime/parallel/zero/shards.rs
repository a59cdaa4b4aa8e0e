//! [`ShardLayout`]: the parts of every unit that a rank owns.
//!
//! Every unit is divided over all ranks by itself, so that gathering it moves the same number of bytes from
//! each of them. A boundary between shards is a multiple of the norm block: the sum of squares of a block is
//! computed by one rank, and its bits do not depend on the number of ranks.

use std::ops::Range;

pub(crate) use crate::runtime::flat::norm::NORM_BLOCK;

/// A unit in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitShards {
    /// Number of elements of the unit.
    pub(crate) len: usize,
    /// Number of elements of a shard; those of the last ranks can be empty or partly padding.
    pub(crate) shard_len: usize,
}

/// Shards of all units for a number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardLayout {
    units: Vec<UnitShards>,
    ranks: usize,
}

impl UnitShards {
    /// Divides a unit over `ranks`.
    fn new(len: usize, ranks: usize) -> Self {
        let blocks = len.div_ceil(NORM_BLOCK);
        Self { len, shard_len: blocks.div_ceil(ranks) * NORM_BLOCK }
    }

    /// Number of blocks of the norm in the unit.
    pub(crate) fn blocks(&self) -> usize {
        self.len.div_ceil(NORM_BLOCK)
    }

    /// Elements of the unit that rank `rank` owns, without padding.
    pub(crate) fn owned(&self, rank: usize) -> Range<usize> {
        let start = (rank * self.shard_len).min(self.len);
        start..(start + self.shard_len).min(self.len)
    }
}

impl ShardLayout {
    /// Divides units of these numbers of elements over `ranks`.
    ///
    /// # Panics
    /// If there is no rank.
    pub(crate) fn new(unit_lens: impl IntoIterator<Item = usize>, ranks: usize) -> Self {
        assert!(0 < ranks, "shards belong to at least one rank");
        let units = unit_lens.into_iter().map(|len| UnitShards::new(len, ranks)).collect();
        Self { units, ranks }
    }

    /// Returns the number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the units.
    pub(crate) fn units(&self) -> &[UnitShards] {
        &self.units
    }

    /// Number of elements of a unit together with its padding: the shards of all ranks.
    pub(crate) fn padded_len(&self, unit: usize) -> usize {
        self.units[unit].shard_len * self.ranks
    }

    /// Number of blocks of the norm in the shards of a rank, with padding; equal for all ranks.
    pub(crate) fn blocks_of_rank(&self) -> usize {
        self.units.iter().map(|unit| unit.shard_len / NORM_BLOCK).sum()
    }

    /// Order in which the block sums of all ranks, in rank order, follow each other in the model: the index
    /// of every block among `ranks · blocks_of_rank` sums.
    pub(crate) fn block_order(&self) -> Vec<usize> {
        let per_rank = self.blocks_of_rank();
        let mut order = Vec::with_capacity(self.units.iter().map(UnitShards::blocks).sum());
        let mut first = 0;
        for unit in &self.units {
            let of_rank = unit.shard_len / NORM_BLOCK;
            let position = |block: usize| block / of_rank * per_rank + first + block % of_rank;
            order.extend((0..unit.blocks()).map(position));
            first += of_rank;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shards_of_a_small_unit_belong_to_the_first_rank() {
        let layout = ShardLayout::new([5, 3000], 4);
        assert_eq!(layout.units()[0].owned(0), 0..5);
        assert_eq!(layout.units()[0].owned(1), 5..5);
        let owned = |rank| layout.units()[1].owned(rank);
        assert_eq!(
            [owned(0), owned(1), owned(2), owned(3)],
            [0..1024, 1024..2048, 2048..3000, 3000..3000]
        );
        assert_eq!(layout.padded_len(1), 4096);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn shards_contain_each_element_once_and_cut_no_block(
            lens in proptest::collection::vec(0usize..20_000, 1..6),
            ranks in 1usize..10,
        ) {
            let layout = ShardLayout::new(lens.iter().copied(), ranks);
            for unit in layout.units() {
                let mut end = 0;
                for rank in 0..ranks {
                    let owned = unit.owned(rank);
                    prop_assert!(owned.is_empty() || owned.start == end);
                    prop_assert!(owned.is_empty() || owned.start % NORM_BLOCK == 0);
                    end = end.max(owned.end);
                }
                prop_assert_eq!(end, unit.len);
            }
        }

        #[test]
        fn block_order_names_each_block_of_the_model_once(
            lens in proptest::collection::vec(0usize..20_000, 1..6),
            ranks in 1usize..10,
        ) {
            let layout = ShardLayout::new(lens.iter().copied(), ranks);
            // What every rank reports: the position of each of its blocks in the model, or none.
            let mut first = vec![0];
            for unit in layout.units() {
                first.push(first[first.len() - 1] + unit.blocks());
            }
            let mut reported = Vec::new();
            for rank in 0..ranks {
                for (unit, first) in layout.units().iter().zip(&first) {
                    for block in 0..unit.shard_len / NORM_BLOCK {
                        let at = rank * unit.shard_len / NORM_BLOCK + block;
                        reported.push((at < unit.blocks()).then_some(first + at));
                    }
                }
            }
            prop_assert_eq!(reported.len(), ranks * layout.blocks_of_rank());
            let found: Vec<_> = layout.block_order().into_iter().map(|at| reported[at]).collect();
            let expected: Vec<_> = (0..first[first.len() - 1]).map(Some).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

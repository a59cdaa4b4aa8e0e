//! [`ShardLayout`]: the parts of every unit that a rank owns.
//!
//! Every unit is divided over all ranks by itself, so that gathering it moves the same number of bytes from
//! each of them. A boundary between shards is a multiple of the norm block: the sum of squares of a block is
//! computed by one rank, and its bits do not depend on the number of ranks.
//!
//! A rank updates one shard, and holds one part of the unit. The parts of a *shard group*, some successive
//! ranks, are the unit. If the shard group is all ranks, part and shard are the same. If it is smaller
//! (hybrid sharding), a part consists of the shards of all ranks that hold it, the *copies* of the part:
//!
//! ```text
//! 4 ranks in shard groups of 2   rank 0     rank 1     rank 2     rank 3
//! part that the rank holds       0 1        2 3        0 1        2 3      (shards)
//! shard that the rank updates    0          2          1          3
//! ```

use std::ops::Range;

pub(crate) use crate::runtime::flat::norm::NORM_BLOCK;

/// A unit in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitShards {
    /// Number of elements of the unit.
    pub(crate) len: usize,
    /// Number of elements of a shard; the last ones can be empty or partly padding.
    pub(crate) shard_len: usize,
    /// Number of ranks.
    ranks: usize,
    /// Number of ranks of a shard group.
    group: usize,
}

/// Shards of all units for a number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardLayout {
    units: Vec<UnitShards>,
    ranks: usize,
}

impl UnitShards {
    /// Divides a unit over `ranks`, in shard groups of `group` of them.
    ///
    /// # Panics
    /// If there is no rank, or some are left over.
    pub(crate) fn new(len: usize, ranks: usize, group: usize) -> Self {
        assert!(0 < group && ranks.is_multiple_of(group), "all shard groups are equally large");
        let blocks = len.div_ceil(NORM_BLOCK);
        Self { len, shard_len: blocks.div_ceil(ranks) * NORM_BLOCK, ranks, group }
    }

    /// Number of blocks of the norm in the unit.
    pub(crate) fn blocks(&self) -> usize {
        self.len.div_ceil(NORM_BLOCK)
    }

    /// Number of elements of the unit together with its padding: all shards.
    pub(crate) fn padded_len(&self) -> usize {
        self.shard_len * self.ranks
    }

    /// Number of elements of a part, with padding.
    pub(crate) fn part_len(&self) -> usize {
        self.shard_len * self.copies()
    }

    /// Number of ranks that hold the same part.
    fn copies(&self) -> usize {
        self.ranks / self.group
    }

    /// Whether several ranks hold the same part.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.group < self.ranks
    }

    /// Part of the unit that rank `rank` holds, with padding.
    pub(crate) fn part(&self, rank: usize) -> Range<usize> {
        let start = rank % self.group * self.part_len();
        start..start + self.part_len()
    }

    /// Index of the shard of rank `rank`.
    fn shard_of(&self, rank: usize) -> usize {
        rank % self.group * self.copies() + rank / self.group
    }

    /// The rank of a shard.
    fn rank_of(&self, shard: usize) -> usize {
        shard / self.copies() + shard % self.copies() * self.group
    }

    /// Shard of rank `rank`, with padding.
    pub(crate) fn shard(&self, rank: usize) -> Range<usize> {
        let start = self.shard_of(rank) * self.shard_len;
        start..start + self.shard_len
    }

    /// Elements of the unit that rank `rank` owns, without padding.
    pub(crate) fn owned(&self, rank: usize) -> Range<usize> {
        let Range { start, end } = self.shard(rank);
        start.min(self.len)..end.min(self.len)
    }

    /// Puts the shards of all ranks, which are in rank order, into the order of the unit, without padding.
    pub(crate) fn in_order<T: Copy>(&self, by_rank: Vec<T>) -> Vec<T> {
        let mut unit = by_rank;
        if self.is_hybrid() {
            let shard = |index| &unit[self.rank_of(index) * self.shard_len..][..self.shard_len];
            unit = (0..self.ranks).flat_map(shard).copied().collect();
        }
        unit.truncate(self.len);
        unit
    }
}

impl ShardLayout {
    /// Creates the layout of units that are divided over the same `ranks`.
    ///
    /// # Panics
    /// If there is no rank.
    pub(crate) fn new(units: impl IntoIterator<Item = UnitShards>, ranks: usize) -> Self {
        assert!(0 < ranks, "shards belong to at least one rank");
        Self { units: units.into_iter().collect(), ranks }
    }

    /// Returns the number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the units.
    pub(crate) fn units(&self) -> &[UnitShards] {
        &self.units
    }

    /// Number of elements of a unit together with its padding.
    pub(crate) fn padded_len(&self, unit: usize) -> usize {
        self.units[unit].padded_len()
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
            let of_shard = unit.shard_len / NORM_BLOCK;
            let position =
                |block: usize| unit.rank_of(block / of_shard) * per_rank + first + block % of_shard;
            order.extend((0..unit.blocks()).map(position));
            first += of_shard;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Number of ranks, and a size of shard groups that divides it.
    fn ranks_and_group() -> impl Strategy<Value = [usize; 2]> {
        (1usize..10).prop_flat_map(|ranks| {
            let sizes: Vec<usize> =
                (1..=ranks).filter(|size| ranks.is_multiple_of(*size)).collect();
            proptest::sample::select(sizes).prop_map(move |group| [ranks, group])
        })
    }

    fn layout(lens: &[usize], [ranks, group]: [usize; 2]) -> ShardLayout {
        ShardLayout::new(lens.iter().map(|len| UnitShards::new(*len, ranks, group)), ranks)
    }

    #[test]
    fn shards_of_a_small_unit_belong_to_the_first_rank() {
        let layout = layout(&[5, 3000], [4, 4]);
        assert_eq!(layout.units()[0].owned(0), 0..5);
        assert_eq!(layout.units()[0].owned(1), 5..5);
        let owned = |rank| layout.units()[1].owned(rank);
        assert_eq!(
            [owned(0), owned(1), owned(2), owned(3)],
            [0..1024, 1024..2048, 2048..3000, 3000..3000]
        );
        assert_eq!(layout.padded_len(1), 4096);
    }

    #[test]
    fn ranks_with_the_same_part_update_its_shards() {
        let unit = UnitShards::new(4 * NORM_BLOCK, 4, 2);
        let in_blocks = |range: Range<usize>| range.start / NORM_BLOCK..range.end / NORM_BLOCK;
        let parts: Vec<_> = (0..4).map(|rank| in_blocks(unit.part(rank))).collect();
        assert_eq!(parts, [0..2, 2..4, 0..2, 2..4]);
        let shards: Vec<_> = (0..4).map(|rank| in_blocks(unit.shard(rank))).collect();
        assert_eq!(shards, [0..1, 2..3, 1..2, 3..4]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn shards_contain_each_element_once_and_cut_no_block(
            lens in proptest::collection::vec(0usize..20_000, 1..6),
            ranks in ranks_and_group(),
        ) {
            let layout = layout(&lens, ranks);
            for unit in layout.units() {
                let mut owners = vec![0; unit.len];
                for rank in 0..ranks[0] {
                    let owned = unit.owned(rank);
                    prop_assert!(owned.is_empty() || owned.start % NORM_BLOCK == 0);
                    let (part, shard) = (unit.part(rank), unit.shard(rank));
                    prop_assert!(part.start <= shard.start && shard.end <= part.end);
                    owners[owned].iter_mut().for_each(|count| *count += 1);
                }
                prop_assert!(owners.iter().all(|count| *count == 1));
            }
        }

        #[test]
        fn shards_in_rank_order_return_to_the_order_of_the_unit(
            len in 0usize..20_000,
            ranks in ranks_and_group(),
        ) {
            let unit = UnitShards::new(len, ranks[0], ranks[1]);
            let by_rank = (0..ranks[0]).flat_map(|rank| unit.shard(rank)).collect();
            prop_assert_eq!(unit.in_order(by_rank), (0..len).collect::<Vec<_>>());
        }

        #[test]
        fn block_order_names_each_block_of_the_model_once(
            lens in proptest::collection::vec(0usize..20_000, 1..6),
            ranks in ranks_and_group(),
        ) {
            let layout = layout(&lens, ranks);
            // What every rank reports: the position of each of its blocks in the model, or none.
            let mut first = vec![0];
            for unit in layout.units() {
                first.push(first[first.len() - 1] + unit.blocks());
            }
            let mut reported = Vec::new();
            for rank in 0..ranks[0] {
                for (unit, first) in layout.units().iter().zip(&first) {
                    for block in 0..unit.shard_len / NORM_BLOCK {
                        let at = unit.shard(rank).start / NORM_BLOCK + block;
                        reported.push((at < unit.blocks()).then_some(first + at));
                    }
                }
            }
            prop_assert_eq!(reported.len(), ranks[0] * layout.blocks_of_rank());
            let found: Vec<_> = layout.block_order().into_iter().map(|at| reported[at]).collect();
            let expected: Vec<_> = (0..first[first.len() - 1]).map(Some).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

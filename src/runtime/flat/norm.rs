//! Norms of flat buffers, computed over fixed blocks so that their bits depend neither on shards nor on
//! threads.
//!
//! A flat buffer is divided into blocks of [`NORM_BLOCK`] elements, counted from its start. The squares of
//! a block are summed in f64, and the sums of the blocks in the order of the canonical
//! [`tree`](crate::runtime::schedule::tree). Ranks that own different blocks exchange [`subtree_sums`], at
//! most two for each level of the tree, and all get the bits of [`sum_of_squares`]. Zeros at the end
//! of a buffer, as padding of shards, change no bit. If all f32 gradients are finite, the sum is finite.

use std::ops::Range;

use crate::os::cpu::simd_versions::versions;
use crate::runtime::dtype::element::GradientElement;
use crate::runtime::flat::tasks::{Parallel, Serial, for_each};
use crate::runtime::schedule::tree::split;

/// Number of elements of a block; boundaries of shards are multiples of it.
pub const NORM_BLOCK: usize = 1024;
/// Number of independent sums in a block: enough additions in flight for the widest registers.
const COLUMNS: usize = 16;
/// Number of blocks that a task sums.
const TASK_BLOCKS: usize = 16;
/// Value that torch adds to a norm before it divides by it.
const NORM_EPSILON: f64 = 1e-6;

/// Returns the sum of squares of each block of a slice that starts at the boundary of a block; the last
/// block may be shorter.
pub fn block_sums<T: GradientElement>(parallel: &dyn Parallel, flat: &[T]) -> Vec<f64> {
    let mut sums = vec![0.0; flat.len().div_ceil(NORM_BLOCK)];
    let tasks = sums.chunks_mut(TASK_BLOCKS).zip(flat.chunks(TASK_BLOCKS * NORM_BLOCK));
    for_each(parallel, tasks, |(sums, flat)| sum_blocks(flat, sums));
    sums
}

/// Returns the sum of the sums of all blocks, in the order of the canonical tree.
pub fn fold_block_sums(sums: &[f64]) -> f64 {
    match sums {
        [] => 0.0,
        [sum] => *sum,
        _ => {
            let (left, right) = sums.split_at(split(sums.len()));
            fold_block_sums(left) + fold_block_sums(right)
        }
    }
}

/// Returns the largest subtrees of the canonical tree over all blocks that lie inside a range of blocks,
/// from left to right. They do not depend on the number of blocks after the range.
pub fn subtrees(blocks: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = blocks.start;
    while start < blocks.end {
        let aligned = if start == 0 { usize::MAX } else { 1 << start.trailing_zeros() };
        let len = aligned.min(1 << (blocks.end - start).ilog2());
        found.push(start..start + len);
        start += len;
    }
    found
}

/// Returns the sum of each of the [`subtrees`] of the blocks from `first` on.
pub fn subtree_sums(first: usize, sums: &[f64]) -> Vec<f64> {
    let subtrees = subtrees(first..first + sums.len()).into_iter();
    subtrees.map(|tree| fold_block_sums(&sums[tree.start - first..tree.end - first])).collect()
}

/// Returns what [`fold_block_sums`] returns for all blocks, from the sums of subtrees that follow each
/// other from block 0 to the last one.
///
/// # Panics
/// If the subtrees leave out a block, overlap, or are not from [`subtrees`].
pub fn fold_subtree_sums(sums: &[(Range<usize>, f64)]) -> f64 {
    let Some((last, _)) = sums.last() else { return 0.0 };
    let mut rest = sums;
    let sum = fold_range(0..last.end, &mut rest);
    assert!(rest.is_empty(), "the subtrees overlap");
    sum
}

/// Takes the subtrees of a range of blocks from the front of `rest`, and returns their sum.
fn fold_range(blocks: Range<usize>, rest: &mut &[(Range<usize>, f64)]) -> f64 {
    let [(next, sum), after @ ..] = *rest else { panic!("no sum for blocks {blocks:?}") };
    if *next == blocks {
        *rest = after;
        return *sum;
    }
    assert!(1 < blocks.len(), "no sum for block {}, the next one is for {next:?}", blocks.start);
    let middle = blocks.start + split(blocks.len());
    let left = fold_range(blocks.start..middle, rest);
    left + fold_range(middle..blocks.end, rest)
}

/// Returns the sum of squares in f64. The squares of a block are summed in 16 columns; columns and
/// blocks are summed in the order of the canonical tree.
pub fn sum_of_squares<T: GradientElement>(flat: &[T]) -> f64 {
    fold_block_sums(&block_sums(&Serial, flat))
}

/// Returns the Euclidean norm.
pub fn global_norm<T: GradientElement>(flat: &[T]) -> f64 {
    sum_of_squares(flat).sqrt()
}

/// Returns the factor that scales a gradient of this norm down to at most `norm_max`, as torch's
/// `clip_grad_norm_` does: `min(1, norm_max / (norm + 1e-6))`.
pub fn clip_factor(norm: f64, norm_max: f64) -> f64 {
    (norm_max / (norm + NORM_EPSILON)).min(1.0)
}

/// Scales the gradient down to the norm `norm_max` if its norm is larger, as torch does; returns the norm
/// before scaling.
pub fn clip_grad_norm<T: GradientElement>(flat: &mut [T], norm_max: f64) -> f64 {
    let norm = global_norm(flat);
    let factor = clip_factor(norm, norm_max);
    if factor < 1.0 {
        let factor = T::from_f64(factor);
        for value in flat {
            *value = value.times(factor);
        }
    }
    norm
}

versions! {
    /// Sums the squares of each block. The elements that are missing in the last row of a block count
    /// as zeros.
    fn sum_blocks<T: GradientElement>(flat: &[T], sums: &mut [f64]) {
        for (block, sum) in flat.chunks(NORM_BLOCK).zip(sums) {
            let (rows, tail) = block.as_chunks::<COLUMNS>();
            let mut columns = [0.0; COLUMNS];
            for row in rows {
                for (column, value) in columns.iter_mut().zip(row) {
                    *column += value.to_f64() * value.to_f64();
                }
            }
            for (column, value) in columns.iter_mut().zip(tail) {
                *column += value.to_f64() * value.to_f64();
            }
            *sum = fold_columns(columns);
        }
    }
}

/// [`fold_block_sums`] of the columns, without recursion.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn fold_columns(mut columns: [f64; COLUMNS]) -> f64 {
    let mut width = COLUMNS;
    while 1 < width {
        width /= 2;
        for pair in 0..width {
            columns[pair] = columns[2 * pair] + columns[2 * pair + 1];
        }
    }
    columns[0]
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these results are exact")]
mod tests {
    use super::*;
    use crate::os::cpu::simd::tests::at_every_level;
    use crate::runtime::flat::tasks::tests::Strided;
    use proptest::prelude::*;

    /// Numbers of many magnitudes, so that another order of additions gives other bits.
    fn gradient(len: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32
        };
        (0..len).map(|_| (next() / 16_777_216.0 - 0.5) * (next() / 1_677_721.6).exp2()).collect()
    }

    #[test]
    fn global_norm_matches_the_definition() {
        assert_eq!(global_norm(&[3.0f32, 4.0]), 5.0);
        assert_eq!(sum_of_squares::<f64>(&[]), 0.0);
        let ones = vec![1.0f32; 3 * NORM_BLOCK + 17];
        assert_eq!(sum_of_squares(&ones), ones.len() as f64);
    }

    #[test]
    fn norm_of_finite_gradients_is_finite() {
        assert!(global_norm(&vec![f32::MAX; 5000]).is_finite());
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let mut gradient = vec![1.0; 5000];
            gradient[4321] = value;
            assert!(!global_norm(&gradient).is_finite());
        }
    }

    #[test]
    fn clip_grad_norm_never_lengthens() {
        let mut gradient = [3.0f64, 4.0];
        assert_eq!(clip_grad_norm(&mut gradient, 10.0), 5.0);
        assert_eq!(gradient, [3.0, 4.0]);
        assert_eq!(clip_grad_norm(&mut gradient, 1.0), 5.0);
        assert!((global_norm(&gradient) - 1.0).abs() < 1e-6);
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert!((clip_factor(4.0, 1.0) - 0.25).abs() < 1e-6);
    }

    /// Values of torch 2.15.
    #[test]
    fn clip_grad_norm_matches_torch() {
        let mut gradient = [3.0f32, 4.0, 0.0, 12.0];
        assert_eq!(clip_grad_norm(&mut gradient, 1.0), 13.0);
        assert_eq!(gradient, [0.230_769_22, 0.307_692_3, 0.0, 0.923_076_87]);
    }

    /// The canonical tree over the columns of each block, then over the blocks.
    fn by_definition(gradient: &[f32]) -> f64 {
        let square = |value: &f32| f64::from(*value) * f64::from(*value);
        let block = |block: &[f32]| {
            let column = |c| block.iter().skip(c).step_by(16).map(square).fold(0.0, |a, b| a + b);
            fold_block_sums(&(0..16).map(column).collect::<Vec<_>>())
        };
        fold_block_sums(&gradient.chunks(1024).map(block).collect::<Vec<_>>())
    }

    #[test]
    fn norm_has_the_same_bits_on_every_instruction_set() {
        for len in [0, 1, 15, 16, 17, 1000, 1024, 1025, 9000] {
            let gradient = gradient(len, 7);
            let expect = by_definition(&gradient);
            let found = at_every_level(|| sum_of_squares(&gradient));
            assert!(found.iter().all(|sum| *sum == expect), "{len}: {found:?}, not {expect}");
            let wide: Vec<f64> = gradient.iter().map(|value| f64::from(*value)).collect();
            let found = at_every_level(|| sum_of_squares(&wide));
            assert!(found.iter().all(|sum| *sum == expect), "{len}: {found:?}, not {expect}");
        }
    }

    #[test]
    fn subtrees_are_nodes_of_the_tree() {
        assert_eq!(subtrees(0..7), [0..4, 4..6, 6..7]);
        assert_eq!(subtrees(3..14), [3..4, 4..8, 8..12, 12..14]);
        assert!(subtrees(5..5).is_empty());
        for end in 0..70usize {
            for start in 0..end {
                let limit = 2 * (end.ilog2() as usize + 1);
                assert!(subtrees(start..end).len() <= limit);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Ranks own ranges of whole blocks, some of them none, and exchange sums of subtrees.
        #[test]
        fn norm_of_any_shards_has_the_same_bits(
            len in 1usize..40_000,
            cuts in proptest::collection::vec(0usize..42, 0..6),
            threads in 1usize..4,
            seed in any::<u64>(),
        ) {
            let gradient = gradient(len, seed);
            let expect = sum_of_squares(&gradient);
            let blocks = len.div_ceil(NORM_BLOCK);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(blocks)).collect();
            cuts.extend([0, blocks]);
            cuts.sort_unstable();
            let mut all = Vec::new();
            for cut in cuts.windows(2) {
                let [start, end] = [0, 1].map(|at| len.min(cut[at] * NORM_BLOCK));
                let sums = block_sums(&Strided(threads), &gradient[start..end]);
                prop_assert_eq!(sums.len(), cut[1] - cut[0]);
                all.extend(subtrees(cut[0]..cut[1]).into_iter().zip(subtree_sums(cut[0], &sums)));
            }
            prop_assert_eq!(fold_subtree_sums(&all).to_bits(), expect.to_bits());
        }

        #[test]
        fn zeros_at_the_end_change_no_bit_of_the_norm(
            len in 0usize..10_000,
            zeros in 0usize..10_000,
            seed in any::<u64>(),
        ) {
            let mut gradient = gradient(len, seed);
            let expect = sum_of_squares(&gradient);
            gradient.resize(len + zeros, 0.0);
            prop_assert_eq!(sum_of_squares(&gradient).to_bits(), expect.to_bits());
        }
    }

    #[test]
    #[should_panic(expected = "no sum for block")]
    fn missing_block_is_a_bug_of_the_caller() {
        fold_subtree_sums(&[(0..2, 1.0), (3..4, 1.0)]);
    }
}

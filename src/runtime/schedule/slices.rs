//! Division of elements into slices, rounds and blocks.

use std::ops::Range;

/// Alignment of slices in elements: a cache line for one-byte types, so that no two ranks write to
/// one.
pub(crate) const SLICE_UNIT: usize = 64;

/// Returns part `index` of `count` elements that are divided among `parts` ranks: contiguous, in order,
/// and as even as whole units allow.
pub fn slice(count: usize, parts: usize, index: usize) -> Range<usize> {
    let units = count.div_ceil(SLICE_UNIT);
    let start = |index: usize| (units * index / parts * SLICE_UNIT).min(count);
    start(index)..start(index + 1)
}

/// Divides `count` elements into pieces of at most `each`; at least one piece, which can be empty, because
/// every operation has at least one barrier.
pub fn rounds(count: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let rounds = count.div_ceil(each).max(1);
    (0..rounds).map(move |round| round * each..count.min((round + 1) * each))
}

/// Divides a range into blocks of at most `each`; none if it is empty.
pub fn blocks(range: Range<usize>, each: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(each).map(move |start| start..end.min(start + each))
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rounds_and_blocks_cover_the_range() {
        assert_eq!(rounds(0, 4).collect::<Vec<_>>(), [0..0]);
        assert_eq!(rounds(9, 4).collect::<Vec<_>>(), [0..4, 4..8, 8..9]);
        assert_eq!(blocks(3..3, 4).count(), 0);
        assert_eq!(blocks(3..9, 4).collect::<Vec<_>>(), [3..7, 7..9]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn slices_cover_each_element_once(count in 0usize..100_000, parts in 1usize..20) {
            let mut next = 0;
            for index in 0..parts {
                let slice = slice(count, parts, index);
                prop_assert_eq!(slice.start, next);
                next = slice.end;
            }
            prop_assert_eq!(next, count);
        }
    }
}

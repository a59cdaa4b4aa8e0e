//! Division of a layout into buckets.

use std::ops::Range;

use crate::runtime::flat::layout::Layout;

/// Range of the flat gradient that is reduced in one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Elements of the bucket.
    pub range: Range<usize>,
}

/// Buckets of whole tensors in reverse order of registration, which is approximately the order in
/// which the backward pass completes them. A bucket is closed when it has reached its size:
/// `first_bytes` for the first one, so that its reduction starts early, and `bytes` for the others.
pub(crate) fn buckets(
    layout: &Layout,
    element_bytes: usize,
    first_bytes: usize,
    bytes: usize,
) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut open = layout.len()..layout.len();
    for (_, range) in layout.tensors().rev() {
        open.start = range.start;
        let limit = if buckets.is_empty() { first_bytes } else { bytes };
        if !open.is_empty() && limit <= open.len() * element_bytes {
            let next = open.start..open.start;
            buckets.push(Bucket { range: std::mem::replace(&mut open, next) });
        }
    }
    if !open.is_empty() {
        buckets.push(Bucket { range: open });
    }
    buckets
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(sizes: &[usize], first_bytes: usize, bytes: usize) -> Vec<Range<usize>> {
        let names = sizes.iter().enumerate().map(|(i, size)| (i.to_string(), *size));
        let buckets = buckets(&Layout::new(names), 4, first_bytes, bytes);
        buckets.into_iter().map(|bucket| bucket.range).collect()
    }

    #[test]
    fn buckets_are_whole_tensors_in_reverse_order() {
        assert_eq!(ranges(&[10, 20, 30], 1, 1), [30..60, 10..30, 0..10]);
        assert_eq!(ranges(&[10, 20, 30], 1, 1000), [30..60, 0..30]);
        assert_eq!(ranges(&[10, 20, 30], 1000, 1), [0..60]);
        assert_eq!(ranges(&[10, 20, 30], 1, 120), [30..60, 0..30]);
        assert_eq!(ranges(&[0, 5, 0], 1, 1), [0..5]);
        assert!(ranges(&[], 1, 1).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn buckets_contain_each_element_once(
            sizes in proptest::collection::vec(0usize..5000, 0..30),
            first in 0usize..8000,
            bytes in 0usize..40_000,
        ) {
            let mut next = sizes.iter().sum();
            for range in ranges(&sizes, first, bytes) {
                prop_assert_eq!(range.end, next);
                prop_assert!(range.start < range.end);
                next = range.start;
            }
            prop_assert_eq!(next, 0);
        }
    }
}

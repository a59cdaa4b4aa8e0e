//! Choice of the algorithm of a reduction, and the sizes of data to which each applies. Pure.
//!
//! The choice depends only on the call and on the placement, so all ranks make the same one.

use crate::runtime::comm::shm::segment::EAGER_BYTES;
use crate::runtime::dtype::element::ReduceOrder;

/// Most bytes of short data that a node receives in total.
const SHORT_BYTES: usize = 1 << 14;

/// Number of other nodes from which on no data is short.
const SHORT_NODES_MAX: usize = 16;

/// Algorithm of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// All ranks read all data beside the flags.
    Eager,
    /// One round after the other.
    Rounds,
    /// Several rounds at once, with other nodes.
    Overlapping,
    /// One round after the other, around a ring of nodes.
    Ring,
}

/// A reduction, as far as the choice of its algorithm depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReductionCase {
    /// Number of nodes of the group.
    pub(super) nodes: usize,
    /// Bytes of a rank's data.
    pub(super) bytes: usize,
    /// Bytes of the sums of that data, which can be of a larger type.
    pub(super) sum_bytes: usize,
    /// Whether one rank alone gets the result.
    pub(super) has_root: bool,
    /// Order of the reduction.
    pub(super) order: ReduceOrder,
}

impl Algorithm {
    /// Selects the algorithm; equal on all ranks.
    pub(super) fn of(case: ReductionCase) -> Self {
        let ReductionCase { nodes, bytes, sum_bytes, has_root, order } = case;
        match order {
            _ if is_eager(nodes, bytes) => Self::Eager,
            _ if nodes == 1 || has_root || is_short(nodes, sum_bytes) => Self::Rounds,
            ReduceOrder::Canonical => Self::Overlapping,
            ReduceOrder::Any => Self::Ring,
        }
    }
}

/// Whether this number of bytes is exchanged beside the flags, with one barrier.
pub(super) fn is_eager(nodes: usize, bytes: usize) -> bool {
    nodes == 1 && bytes <= EAGER_BYTES
}

/// Whether sending this number of bytes to all nodes is faster than folding slice by slice: nodes then
/// exchange data once instead of twice, and every node folds everything.
fn is_short(nodes: usize, bytes: usize) -> bool {
    short_bytes_max(nodes).is_some_and(|max| bytes <= max)
}

/// Largest size in bytes of short data for a number of nodes; `None` if no data is short.
pub(crate) fn short_bytes_max(nodes: usize) -> Option<usize> {
    let others = nodes - 1;
    (0 < others && others < SHORT_NODES_MAX).then(|| SHORT_BYTES / others)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum_of(nodes: usize, bytes: usize) -> ReductionCase {
        let order = ReduceOrder::Canonical;
        ReductionCase { nodes, bytes, sum_bytes: bytes, has_root: false, order }
    }

    #[test]
    fn algorithm_follows_size_nodes_order_and_root() {
        #[track_caller]
        fn check(case: ReductionCase, expect: Algorithm) {
            assert_eq!(Algorithm::of(case), expect, "{case:?}");
        }
        let any = |case| ReductionCase { order: ReduceOrder::Any, ..case };
        let to_root = |case| ReductionCase { has_root: true, ..case };
        check(sum_of(1, EAGER_BYTES), Algorithm::Eager);
        check(to_root(sum_of(1, 8)), Algorithm::Eager);
        check(sum_of(1, EAGER_BYTES + 1), Algorithm::Rounds);
        check(any(sum_of(1, 1 << 20)), Algorithm::Rounds);
        check(sum_of(2, SHORT_BYTES), Algorithm::Rounds);
        check(sum_of(2, SHORT_BYTES + 1), Algorithm::Overlapping);
        check(any(sum_of(2, SHORT_BYTES)), Algorithm::Rounds);
        check(any(sum_of(2, SHORT_BYTES + 1)), Algorithm::Ring);
        check(sum_of(3, SHORT_BYTES), Algorithm::Overlapping);
        check(sum_of(SHORT_NODES_MAX, 8), Algorithm::Rounds);
        check(sum_of(1 + SHORT_NODES_MAX, 8), Algorithm::Overlapping);
        check(to_root(sum_of(2, 1 << 20)), Algorithm::Rounds);
    }

    proptest! {
        #[test]
        fn larger_data_never_returns_to_an_algorithm_for_smaller(
            nodes in 1_usize..40,
            bytes in 0_usize..1 << 15,
        ) {
            let is_large = |bytes| !matches!(
                Algorithm::of(sum_of(nodes, bytes)),
                Algorithm::Eager | Algorithm::Rounds
            );
            prop_assert!(!is_large(bytes) || is_large(bytes + 1));
        }
    }
}

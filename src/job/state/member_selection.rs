//! Selection of the nodes whose workers can share the lanes of a training. Pure.

use std::cmp::Reverse;

use crate::base::order;
use crate::job::event::{ElasticNodes, MeetingPoint};

/// Limit of the table of sums; of more nodes of different sizes, only the first ones are taken.
const TABLE_MAX: usize = 1 << 22;

/// Which selections are allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// Smallest number of nodes.
    pub(super) min: usize,
    /// Largest number of nodes.
    pub(super) max: usize,
    /// Lanes, which the number of workers must divide.
    pub(super) lanes: Option<usize>,
    /// Whether the first node must be selected.
    pub(super) keeps_first: bool,
}

/// Selects the largest allowed number of nodes. `sizes` has the workers of every node, the preferred nodes first; of
/// several selections the first in this order is taken. Returns indices; `None` if no selection is allowed.
pub(super) fn select(sizes: &[usize], allowed: Allowed) -> Option<Vec<usize>> {
    let (min, max) = (allowed.min.max(1), allowed.max.min(sizes.len()));
    let Some(lanes) = allowed.lanes else {
        return (min <= max).then(|| (0..max).collect());
    };
    let sums = lanes.min(sizes.iter().sum()) + 1;
    let is_uniform = sizes.windows(2).all(|pair| pair[0] == pair[1]);
    if is_uniform || TABLE_MAX < sizes.len() * max * sums {
        return first_nodes(&sizes[..max], min, lanes);
    }
    let (table, keeps_first) = (SumTable::new(sizes, max, sums), allowed.keeps_first);
    (min..=max).rev().find_map(|count| table.first_selection(sizes, (count, lanes), keeps_first))
}

impl ElasticNodes {
    /// Returns the numbers of workers of the nodes with which a job starts if all nodes are there and have these numbers;
    /// `None` if no selection of them can start.
    pub fn largest_world(self, sizes: &[usize]) -> Option<Vec<usize>> {
        let Self { min, max, lanes, .. } = self;
        let keeps_first = self.meeting == MeetingPoint::Node0;
        let mut sizes = sizes.to_vec();
        let kept = usize::from(keeps_first).min(sizes.len());
        order::sort_by_key(&mut sizes[kept..], |size| Reverse(*size));
        let selected = select(&sizes, Allowed { min, max, lanes, keeps_first })?;
        Some(selected.into_iter().map(|index| sizes[index]).collect())
    }
}

/// The largest number of nodes, at least `min`, that are the first ones.
fn first_nodes(sizes: &[usize], min: usize, lanes: usize) -> Option<Vec<usize>> {
    let sums = sizes.iter().scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    let can_share = |(count, workers): &(usize, usize)| min <= *count && divides(*workers, lanes);
    let (count, _) = (1..).zip(sums).filter(can_share).last()?;
    Some((0..count).collect())
}

fn divides(workers: usize, lanes: usize) -> bool {
    workers != 0 && lanes.is_multiple_of(workers)
}

/// Which numbers of workers some of the last nodes have.
struct SumTable {
    counts: usize,
    sums: usize,
    /// For the nodes from `first` on, a number of them, and a sum: whether so many have that sum.
    reachable: Vec<bool>,
}

impl SumTable {
    fn new(sizes: &[usize], max: usize, sums: usize) -> Self {
        let counts = max + 1;
        let reachable = vec![false; (sizes.len() + 1) * counts * sums];
        let mut table = Self { counts, sums, reachable };
        for first in (0..=sizes.len()).rev() {
            let at = table.index(first, 0, 0);
            table.reachable[at] = true;
            for count in 1..=max.min(sizes.len() - first) {
                for sum in 0..sums {
                    let without = table.has(first + 1, count, Some(sum));
                    let with = table.has(first + 1, count - 1, sum.checked_sub(sizes[first]));
                    let at = table.index(first, count, sum);
                    table.reachable[at] = without || with;
                }
            }
        }
        table
    }

    fn index(&self, first: usize, count: usize, sum: usize) -> usize {
        (first * self.counts + count) * self.sums + sum
    }

    /// Whether this many of the nodes from `first` on have this sum.
    fn has(&self, first: usize, count: usize, sum: Option<usize>) -> bool {
        sum.is_some_and(|sum| sum < self.sums && self.reachable[self.index(first, count, sum)])
    }

    /// The first selection of this many nodes whose sum divides the lanes.
    fn first_selection(
        &self,
        sizes: &[usize],
        (count, lanes): (usize, usize),
        keeps_first: bool,
    ) -> Option<Vec<usize>> {
        let mut wanted: Vec<usize> = (1..self.sums).filter(|sum| divides(*sum, lanes)).collect();
        let mut chosen = Vec::new();
        for (node, size) in sizes.iter().enumerate() {
            let left = count - chosen.len();
            if left == 0 {
                break;
            }
            let rest = |sum: &usize| sum.checked_sub(*size);
            let can_follow = |sum: &usize| self.has(node + 1, left - 1, rest(sum));
            if wanted.iter().any(can_follow) {
                wanted = wanted.iter().filter(|sum| can_follow(sum)).filter_map(rest).collect();
                chosen.push(node);
            } else if node == 0 && keeps_first {
                return None;
            }
        }
        (chosen.len() == count).then_some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::event::Newcomers;

    #[track_caller]
    fn check(
        sizes: &[usize],
        (min, max): (usize, usize),
        lanes: usize,
        expected: Option<&[usize]>,
    ) {
        let allowed = Allowed { min, max, lanes: Some(lanes), keeps_first: true };
        assert_eq!(select(sizes, allowed).as_deref(), expected);
    }

    #[test]
    fn largest_world_is_that_of_the_first_start() {
        let world = |sizes: &[usize], meeting, lanes| {
            let elastic = ElasticNodes {
                min: 2,
                max: 4,
                meeting,
                last_call: Duration::ZERO,
                newcomers: Newcomers::AtOnce,
                excludes_failing: false,
                lanes,
            };
            elastic.largest_world(sizes)
        };
        let called = MeetingPoint::Launcher;
        assert_eq!(world(&[1, 2, 1, 2, 1], called, None), Some(vec![2, 2, 1, 1]));
        assert_eq!(world(&[1, 1, 1, 1], called, Some(6)), Some(vec![1, 1, 1]));
        assert_eq!(world(&[1, 1, 1, 1], called, Some(5)), None);
        assert_eq!(world(&[1, 3, 3], called, Some(6)), Some(vec![3, 3]));
        assert_eq!(world(&[1, 3, 3], MeetingPoint::Node0, Some(8)), Some(vec![1, 3]));
    }

    #[test]
    fn nodes_without_lanes_are_the_first() {
        let select = |sizes: &[usize], min, max| {
            select(sizes, Allowed { min, max, lanes: None, keeps_first: true })
        };
        assert_eq!(select(&[4, 2, 2], 1, 2), Some(vec![0, 1]));
        assert_eq!(select(&[4, 2, 2], 1, 9), Some(vec![0, 1, 2]));
        assert_eq!(select(&[4], 2, 3), None);
    }

    #[test]
    fn nodes_of_one_size_are_the_first_that_divide_the_lanes() {
        check(&[2, 2, 2], (1, 3), 12, Some(&[0, 1, 2]));
        check(&[2, 2, 2], (1, 3), 8, Some(&[0, 1]));
        check(&[2, 2, 2], (3, 3), 8, None);
    }

    #[test]
    fn nodes_of_different_sizes_need_not_be_the_first() {
        check(&[4, 3, 2], (1, 3), 6, Some(&[0, 2]));
        check(&[4, 2, 2, 1], (1, 4), 8, Some(&[0, 1, 2]));
        check(&[4, 3, 2, 1], (1, 2), 8, Some(&[0]));
        check(&[4, 3, 2, 1], (2, 2), 8, None);
        check(&[4, 3, 2, 1], (1, 3), 8, Some(&[0, 1, 3]));
    }

    #[test]
    fn first_node_is_kept_if_it_must_be() {
        check(&[3, 2, 2], (1, 3), 4, None);
        check(&[2, 3, 2], (1, 3), 4, Some(&[0, 2]));
        let free = Allowed { min: 1, max: 3, lanes: Some(4), keeps_first: false };
        assert_eq!(select(&[3, 2, 2], free), Some(vec![1, 2]));
    }

    #[test]
    fn of_very_many_nodes_the_first_are_selected() {
        let mut sizes = vec![8; 5000];
        sizes.push(4);
        check(&sizes, (1, 5001), 40_000, Some(&(0..5000).collect::<Vec<_>>()));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        /// No other selection is larger, as trying all of them shows.
        #[test]
        fn selection_is_the_largest_there_is(
            sizes in proptest::collection::vec(1usize..5, 1..8),
            lanes in 1usize..25,
            max in 1usize..8,
        ) {
            let subsets = (1u32..1 << sizes.len()).filter(|subset| subset & 1 == 1);
            let of = |subset: u32| (0..sizes.len()).filter(move |node| subset >> node & 1 == 1);
            let fits = |subset: &u32| {
                divides(of(*subset).map(|node| sizes[node]).sum(), lanes)
                    && subset.count_ones() as usize <= max
            };
            let largest = subsets.filter(fits).map(u32::count_ones).max();
            let allowed = Allowed { min: 1, max, lanes: Some(lanes), keeps_first: true };
            let found = select(&sizes, allowed);
            assert_eq!(found.as_ref().map(|nodes| nodes.len() as u32), largest);
            if let Some(nodes) = found {
                let sum = nodes.iter().map(|node| sizes[*node]).sum();
                assert!(divides(sum, lanes) && nodes.len() <= max && nodes[0] == 0);
            }
        }
    }
}

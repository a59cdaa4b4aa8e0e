//! Facts of all nodes → what is wrong. Pure: a table of tests for each kind of finding.

mod compute;
mod gpus;
mod names;
mod place;
mod reach;
#[cfg(test)]
pub(super) mod testing;
mod ways;

pub use compute::SHM_BYTES_MIN;
pub(super) use reach::CLOCK_OFF_US;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::case::{Case, Finding};
use crate::base::NodeRank;

/// Everything that is wrong, the worst first.
pub fn judge(case: &Case) -> Vec<Finding> {
    let families =
        [reach::judge, place::judge, gpus::judge, compute::judge, ways::judge, names::judge];
    let mut found: Vec<Finding> = families.iter().flat_map(|family| family(case)).collect();
    found.sort_by_key(|finding| (Reverse(finding.severity), finding.code));
    found
}

/// Who differs from most, and what most have; among equals the first counts.
fn odd_ones<T: Ord + Clone>(values: &[(NodeRank, T)]) -> Option<(T, Vec<(NodeRank, T)>)> {
    let mut counts: BTreeMap<&T, (usize, Reverse<usize>)> = BTreeMap::new();
    for (place, (_, value)) in values.iter().enumerate() {
        counts.entry(value).or_insert((0, Reverse(place))).0 += 1;
    }
    let (usual, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let odd: Vec<_> = values.iter().filter(|(_, value)| value != usual).cloned().collect();
    (!odd.is_empty()).then(|| (usual.clone(), odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[u32], expect: Option<(u32, &[u32])>) {
        let values: Vec<_> = (0..).map(NodeRank).zip(values.iter().copied()).collect();
        let found = odd_ones(&values);
        let found = found.map(|(usual, odd)| {
            (usual, odd.into_iter().map(|(node, _)| node.0).collect::<Vec<_>>())
        });
        assert_eq!(found, expect.map(|(usual, odd)| (usual, odd.to_vec())));
    }

    #[test]
    fn the_minority_is_odd_and_of_two_the_second() {
        check(&[], None);
        check(&[5, 5, 5], None);
        check(&[5, 6, 5], Some((5, &[1])));
        check(&[6, 5, 5], Some((5, &[0])));
        check(&[5, 6], Some((5, &[1])));
        check(&[6, 5], Some((6, &[1])));
    }
}

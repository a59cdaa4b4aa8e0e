//! Nodes whose value differs from that of most nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::base::NodeRank;

/// The most frequent value and the nodes that have another; of equally frequent values the first
/// one counts. `None` if all values are equal.
pub(crate) fn outliers<T: Ord + Clone>(
    values: &[(NodeRank, T)],
) -> Option<(T, Vec<(NodeRank, T)>)> {
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
        let found = outliers(&values);
        let found = found.map(|(usual, odd)| {
            (usual, odd.into_iter().map(|(node, _)| node.0).collect::<Vec<_>>())
        });
        assert_eq!(found, expect.map(|(usual, odd)| (usual, odd.to_vec())));
    }

    #[test]
    fn odd_ones_are_the_minority_or_the_second_of_two() {
        check(&[], None);
        check(&[5, 5, 5], None);
        check(&[5, 6, 5], Some((5, &[1])));
        check(&[6, 5, 5], Some((5, &[0])));
        check(&[5, 6], Some((5, &[1])));
        check(&[6, 5], Some((6, &[1])));
    }
}

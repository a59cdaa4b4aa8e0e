//! Sorting of short lists. [`slice::sort_by`] is compiled for each type and each order, which takes 9 kB of the
//! executable every time; these functions share one copy and take some 20 ns longer for each comparison.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Sorts as [`slice::sort`] does.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Sorts as [`slice::sort_by_key`] does.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |one, other| key(one).cmp(&key(other)));
}

/// Sorts as [`slice::sort_by`] does.
pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let sources = sorted_places(items.len(), &mut |one, other| compare(&items[one], &items[other]));
    rearrange(sources, &mut |one, other| items.swap(one, other));
}

/// Makes a map of pairs, of which the last with a key counts. [`Iterator::collect`] sorts them first.
pub fn map<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        map.insert(key, value);
    }
    map
}

/// Makes a set. [`Iterator::collect`] sorts first.
pub fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    for item in items {
        set.insert(item);
    }
    set
}

/// For every place of the sorted list, where its item lies now.
fn sorted_places(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..len).collect();
    places.sort_by(|one, other| compare(*one, *other));
    places
}

/// Moves items to their places with swaps: one cycle of the permutation after the other.
fn rearrange(mut sources: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..sources.len() {
        let mut place = start;
        loop {
            let source = std::mem::replace(&mut sources[place], place);
            if source == start {
                break;
            }
            swap(place, source);
            place = source;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn order_of_lists_is_that_of_the_standard_library(
            items in proptest::collection::vec((0u8..8, any::<u8>()), 0..80)
        ) {
            let (mut ours, mut theirs) = (items.clone(), items.clone());
            sort_by_key(&mut ours, |item| item.0);
            theirs.sort_by_key(|item| item.0);
            prop_assert_eq!(&ours, &theirs);
            sort(&mut ours);
            theirs.sort_unstable();
            prop_assert_eq!(ours, theirs);
            prop_assert_eq!(map(items.iter().copied()), items.iter().copied().collect());
            prop_assert_eq!(set(items.iter().copied()), items.into_iter().collect());
        }
    }
}

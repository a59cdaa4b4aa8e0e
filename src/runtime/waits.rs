//! Wait graph between nodes: a rank that waits long publishes in the store which ranks it waits for. A
//! rank whose deadline passes follows these entries to the ranks that are really late.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::{Rank, clock};
use crate::runtime::net::{STORE_PATIENCE, SharedStore, lock};
use crate::runtime::node::Patience;

/// A wait that is worth a word: it is longer than this, or than a quarter of what it may be.
const LONG: Duration = Duration::from_secs(1);

/// What a rank tells.
pub(crate) struct Waits {
    rank: Rank,
    store: SharedStore,
    told: RefCell<Vec<Rank>>,
}

impl Waits {
    pub(crate) fn new(rank: Rank, store: SharedStore) -> Self {
        Self { rank, store, told: RefCell::default() }
    }

    /// Publishes the ranks that this rank waits for, once it has waited long, and again when they change.
    pub(crate) fn tell(&self, patience: Patience, waiting_for: impl FnOnce() -> Vec<Rank>) {
        let long = LONG.min(patience.deadline.saturating_duration_since(patience.since) / 4);
        if clock::now() < patience.since + long {
            return;
        }
        let waiting_for = waiting_for();
        if *self.told.borrow() != waiting_for {
            self.write(waiting_for);
        }
    }

    /// This rank waits no more.
    pub(crate) fn end(&self) {
        if !self.told.borrow().is_empty() {
            self.write(Vec::new());
        }
    }

    /// A store that cannot be reached is told about elsewhere.
    fn write(&self, waiting_for: Vec<Rank>) {
        let value = postcard::to_allocvec(&waiting_for).expect("numbers serialize");
        let deadline = clock::now() + STORE_PATIENCE;
        let _ = lock(&self.store).set(&key(self.rank), &value, deadline);
        self.told.replace(waiting_for);
    }

    /// Follows the entries of these ranks to the ranks that do not wait for others.
    pub(crate) fn trace(&self, waiting_for: &[Rank]) -> Vec<Rank> {
        let deadline = clock::now() + STORE_PATIENCE;
        let mut store = lock(&self.store);
        let found = trace(self.rank, waiting_for, |rank| {
            let value = store.peek(&key(rank), deadline).ok()??;
            postcard::from_bytes(&value).ok()
        });
        if found.is_empty() { waiting_for.to_vec() } else { found }
    }
}

fn key(rank: Rank) -> String {
    format!("waits/{rank}")
}

/// Follows waits from one rank on; who has told of none, or waits in a circle with us, ends a way.
fn trace(
    own: Rank,
    waiting_for: &[Rank],
    mut waits_of: impl FnMut(Rank) -> Option<Vec<Rank>>,
) -> Vec<Rank> {
    let (mut seen, mut idle) = (BTreeSet::from([own]), BTreeSet::new());
    let mut open = waiting_for.to_vec();
    while let Some(rank) = open.pop() {
        if !seen.insert(rank) {
            continue;
        }
        match waits_of(rank).filter(|waits| !waits.is_empty()) {
            Some(waits) => open.extend(waits),
            None => {
                idle.insert(rank);
            }
        }
    }
    idle.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(waits: &[(u32, &[u32])], expect: &[u32]) {
        let ranks = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect::<Vec<_>>();
        let waits_of = |rank: Rank| {
            let found = waits.iter().find(|(waiting, _)| *waiting == rank.0);
            found.map(|(_, for_whom)| ranks(for_whom))
        };
        let first = waits_of(Rank(0)).expect("rank 0 asks");
        assert_eq!(trace(Rank(0), &first, waits_of), ranks(expect));
    }

    #[test]
    fn the_end_of_every_way_is_who_has_not_come() {
        check(&[(0, &[1])], &[1]);
        check(&[(0, &[2]), (2, &[1]), (3, &[2])], &[1]);
        check(&[(0, &[2, 4]), (2, &[1, 4])], &[1, 4]);
        // It waited once, and came.
        check(&[(0, &[2]), (2, &[])], &[2]);
        // All wait for each other.
        check(&[(0, &[1]), (1, &[0])], &[]);
    }
}

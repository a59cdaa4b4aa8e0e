//! Wait graph between nodes: a rank that waits for long publishes in the store the ranks for which it
//! waits; a rank whose deadline has passed finds there the late ranks at the end of the chain.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::{Rank, clock, lock};
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::wait_report::WaitReport;
use crate::runtime::comm::store::shared::{STORE_TIMEOUT, SharedStore};

/// Duration of a wait after which it is reported, unless a quarter of its time limit is shorter.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Reports of a rank's waits, in the store.
pub(crate) struct WaitReporter {
    rank: Rank,
    store: SharedStore,
    /// Ranks that the entry of this rank in the store names.
    published: RefCell<Vec<Rank>>,
}

impl WaitReporter {
    pub(crate) fn new(rank: Rank, store: SharedStore) -> Self {
        Self { rank, store, published: RefCell::default() }
    }

    /// Writes to the store; an unreachable store is reported elsewhere.
    fn write(&self, waiting_for: Vec<Rank>) {
        let value = postcard::to_allocvec(&waiting_for).expect("numbers serialize");
        let deadline = clock::now() + STORE_TIMEOUT;
        let _ = lock(&self.store).set(&key(self.rank), &value, deadline);
        self.published.replace(waiting_for);
    }
}

impl WaitReport for WaitReporter {
    fn publish(&self, deadline: Deadline, waiting_for: &dyn Fn() -> Vec<Rank>) {
        let long = LONG_WAIT.min(deadline.until.saturating_duration_since(deadline.since) / 4);
        if clock::now() < deadline.since + long {
            return;
        }
        let waiting_for = waiting_for();
        if *self.published.borrow() != waiting_for {
            self.write(waiting_for);
        }
    }

    fn clear(&self) {
        if !self.published.borrow().is_empty() {
            self.write(Vec::new());
        }
    }

    fn trace(&self, waiting_for: &[Rank]) -> Vec<Rank> {
        let deadline = clock::now() + STORE_TIMEOUT;
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

/// Follows waits from one rank on; a chain ends at a rank without an entry, or at a cycle.
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
            found.map(|(_, waiting_for)| ranks(waiting_for))
        };
        let first = waits_of(Rank(0)).expect("rank 0 waits");
        assert_eq!(trace(Rank(0), &first, waits_of), ranks(expect));
    }

    #[test]
    fn wait_graph_ends_at_the_missing_ranks() {
        check(&[(0, &[1])], &[1]);
        check(&[(0, &[2]), (2, &[1]), (3, &[2])], &[1]);
        check(&[(0, &[2, 4]), (2, &[1, 4])], &[1, 4]);
        // Rank 2 has waited before, but no longer does.
        check(&[(0, &[2]), (2, &[])], &[2]);
        // Both ranks wait for each other.
        check(&[(0, &[1]), (1, &[0])], &[]);
    }
}

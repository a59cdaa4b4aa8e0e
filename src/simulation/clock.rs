//! Virtual time, and the agenda of what will happen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A point in virtual time, or a length of it, in microseconds.
pub(super) type Micros = u64;

pub(super) const MS: Micros = 1_000;
pub(super) const SECOND: Micros = 1_000_000;

/// What will happen, in the order of its time; what has the same time keeps its order.
pub(super) struct Agenda<E> {
    entries: BinaryHeap<Reverse<Entry<E>>>,
    count: u64,
    /// The present.
    pub(super) now: Micros,
}

struct Entry<E> {
    at: Micros,
    number: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self { entries: BinaryHeap::new(), count: 0, now: 0 }
    }

    /// Adds an event; one of the past happens now.
    pub(super) fn add(&mut self, at: Micros, event: E) {
        self.count += 1;
        self.entries.push(Reverse(Entry { at: at.max(self.now), number: self.count, event }));
    }

    /// Removes the next event and moves the present to its time.
    pub(super) fn next(&mut self) -> Option<E> {
        let Reverse(entry) = self.entries.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Number of events so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

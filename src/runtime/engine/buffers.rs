//! [`UnitBuffers`]: unused buffers of several lengths, for units that are in use for a short time.

use std::convert::Infallible;

use crate::runtime::comm::shm::buffer::SharedBuffer;
use crate::runtime::dtype::element::Element;

/// A buffer of a fixed number of elements.
pub(crate) trait Capacity {
    /// Returns the number of elements.
    fn capacity(&self) -> usize;
}

/// Unused buffers.
///
/// There are never more buffers than were in use at the same time, and each grows at most to the longest
/// request. So a sequence of requests that is repeated ends up without allocations.
pub(crate) struct UnitBuffers<B> {
    unused: Vec<B>,
}

impl<B: Capacity> UnitBuffers<B> {
    pub(crate) fn new() -> Self {
        Self { unused: Vec::new() }
    }

    /// Takes the shortest unused buffer of at least `len` elements. If all are shorter, `allocate` makes one
    /// that replaces the longest of them.
    pub(crate) fn take<E>(
        &mut self,
        len: usize,
        allocate: impl FnOnce(usize) -> Result<B, E>,
    ) -> Result<B, E> {
        let all = || self.unused.iter().enumerate();
        let fitting = all().filter(|(_, buffer)| len <= buffer.capacity());
        if let Some((at, _)) = fitting.min_by_key(|(_, buffer)| buffer.capacity()) {
            return Ok(self.unused.swap_remove(at));
        }
        if let Some((at, _)) = all().max_by_key(|(_, buffer)| buffer.capacity()) {
            self.unused.swap_remove(at);
        }
        allocate(len)
    }

    /// Keeps a buffer that is not used any more.
    pub(crate) fn keep(&mut self, buffer: B) {
        self.unused.push(buffer);
    }
}

impl<T: Element> Capacity for SharedBuffer<T> {
    fn capacity(&self) -> usize {
        self.len()
    }
}

impl<T> Capacity for Vec<T> {
    fn capacity(&self) -> usize {
        self.capacity()
    }
}

/// A buffer of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned(usize);

impl Capacity for Planned {
    fn capacity(&self) -> usize {
        self.0
    }
}

/// Buffers of a pool of which nothing is allocated, for a forecast of its memory.
pub(crate) struct PlannedPool {
    pool: UnitBuffers<Planned>,
    /// Buffers in use, by the unit that uses them.
    used: Vec<(usize, Planned)>,
}

impl PlannedPool {
    pub(crate) fn new() -> Self {
        Self { pool: UnitBuffers::new(), used: Vec::new() }
    }

    /// Takes a buffer for a unit of `len` elements, unless it has one.
    pub(crate) fn take(&mut self, unit: usize, len: usize) {
        if self.used.iter().all(|(other, _)| *other != unit) {
            let Ok(buffer) = self.pool.take(len, |len| Ok::<_, Infallible>(Planned(len)));
            self.used.push((unit, buffer));
        }
    }

    /// The unit does not use its buffer any more.
    pub(crate) fn keep(&mut self, unit: usize) {
        if let Some(at) = self.used.iter().position(|(other, _)| *other == unit) {
            self.pool.keep(self.used.swap_remove(at).1);
        }
    }

    /// Elements of all buffers.
    pub(crate) fn elements(&self) -> usize {
        let used = self.used.iter().map(|(_, buffer)| buffer);
        used.chain(&self.pool.unused).map(|buffer| buffer.0).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_prefers_the_shortest_buffer_that_fits() {
        let mut pool = PlannedPool::new();
        pool.take(0, 10);
        pool.take(1, 30);
        pool.keep(0);
        pool.keep(1);
        pool.take(2, 8);
        assert_eq!(pool.used, [(2, Planned(10))]);
        assert_eq!(pool.elements(), 40);
    }

    #[test]
    fn pool_replaces_a_short_buffer_by_a_longer_one() {
        let mut pool = PlannedPool::new();
        pool.take(0, 10);
        pool.take(1, 20);
        pool.keep(0);
        pool.keep(1);
        pool.take(2, 50);
        pool.take(3, 10);
        assert_eq!(pool.elements(), 60, "the buffer of 20 became one of 50");
    }
}

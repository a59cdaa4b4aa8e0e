//! Buffers in the segment, and the part of a buffer that operations in progress use.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::runtime::comm::core::lent_ranges::LentRanges;
use crate::runtime::comm::shm::arena::Arena;
use crate::runtime::comm::shm::error::ArenaFull;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;

/// Buffer in the shared memory of a node, which operations do not need to copy within the node.
///
/// [`Group::alloc`](crate::runtime::Group::alloc) creates it, filled with zeros; dropping it frees it. After
/// an operation on it has failed, its contents are unspecified.
pub struct Buffer<T> {
    window: Window<T>,
}

impl<T: Element> Buffer<T> {
    /// Allocates a buffer of `len` zeros.
    pub(crate) fn zeros(arena: &Arc<Arena>, len: usize) -> Result<Self, ArenaFull> {
        let allocation = arena.allocate(len.saturating_mul(size_of::<T>()))?;
        Ok(Self { window: Window::on_allocation(allocation, len) })
    }

    pub(crate) fn window(&self) -> Window<T> {
        self.window.clone()
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.window.as_slice(&(0..self.window.len()))
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: in bounds and aligned. No operation is in progress: a blocking one borrows the
        // buffer, an asynchronous one owns it, and its handle returns it after the last barrier.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.window.address(&(0..self.window.len())),
                self.window.len(),
            )
        }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Buffer of which some ranges are lent to operations in flight while its owner uses the rest.
#[derive(Debug)]
pub struct SharedBuffer<T: Element> {
    buffer: Buffer<T>,
    lent: LentRanges,
}

impl<T: Element> SharedBuffer<T> {
    pub(crate) fn new(buffer: Buffer<T>) -> Self {
        let lent = LentRanges::new(buffer.window.len());
        Self { buffer, lent }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.buffer.window.len()
    }

    /// Lends a range, of which no element may be lent or accessed until [`Self::restore`].
    pub(crate) fn lend(&mut self, range: &Range<usize>) -> Lent<T> {
        self.lent.lend(range);
        Lent { window: self.buffer.window.part(range), range: range.clone() }
    }

    /// Ends a lending.
    pub(crate) fn restore(&mut self, lent: Lent<T>) {
        let Lent { window, range } = lent;
        let is_own = self.buffer.window.part(&range).offset() == window.offset();
        assert!(is_own, "elements {range:?} were lent by another buffer");
        self.lent.restore(&range);
    }

    /// Elements of a range of which no element is lent. Panics if one is.
    pub(crate) fn slice(&self, range: &Range<usize>) -> &[T] {
        self.lent.assert_free(range);
        self.buffer.window.as_slice(range)
    }

    /// Elements of a range of which no element is lent, to change. Panics if one is.
    pub(crate) fn slice_mut(&mut self, range: &Range<usize>) -> &mut [T] {
        self.lent.assert_free(range);
        // SAFETY: in bounds and aligned; the range is not lent, and the slice borrows `self`, so it
        // cannot be lent while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.window.address(range), range.len()) }
    }
}

/// Range of a [`SharedBuffer`] that is lent; only its holder accesses the elements.
pub struct Lent<T: Element> {
    window: Window<T>,
    range: Range<usize>,
}

impl<T: Element> Lent<T> {
    pub(crate) fn window(&self) -> Window<T> {
        self.window.clone()
    }
}

impl<T: Element> Deref for Lent<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.window.as_slice(&(0..self.window.len()))
    }
}

impl<T: Element> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let range = 0..self.window.len();
        // SAFETY: in bounds and aligned; the buffer gives no other access to a lent range, and an operation
        // in progress owns or borrows `self`.
        unsafe { std::slice::from_raw_parts_mut(self.window.address(&range), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cpu::memory::resident_bytes;
    use crate::runtime::comm::shm::segment::Segment;

    fn arena() -> Arc<Arena> {
        Arena::new(&Segment::attach(Segment::create(1).unwrap()).unwrap(), 0)
    }

    #[test]
    fn arena_returns_freed_memory_to_the_kernel() {
        let arena = arena();
        let resident = || resident_bytes(arena.segment.mapping().fd()).unwrap();
        let before = resident();
        let mut buffer = Buffer::<f64>::zeros(&arena, 100_000).unwrap();
        buffer.fill(1.0);
        assert!(before + 800_000 <= resident());
        drop(buffer);
        assert_eq!(resident(), before);
        assert!(Buffer::<f64>::zeros(&arena, 100_000).unwrap().iter().all(|value| *value == 0.0));
        assert_eq!(arena.free.lock().unwrap().len(), 1, "adjacent ranges are merged");
    }

    #[test]
    fn arena_without_room_is_an_error() {
        let arena = arena();
        assert!(matches!(Buffer::<f64>::zeros(&arena, usize::MAX), Err(ArenaFull { .. })));
        assert_eq!(Buffer::<u8>::zeros(&arena, 0).unwrap().len(), 0);
    }

    #[test]
    #[should_panic(expected = "elements 3..5 are being reduced already")]
    fn shared_buffer_rejects_access_to_lent_ranges() {
        let mut buffer = SharedBuffer::new(Buffer::<f32>::zeros(&arena(), 8).unwrap());
        let lent = buffer.lend(&(4..8));
        buffer.slice_mut(&(0..4)).fill(1.0);
        buffer.restore(lent);
        buffer.slice_mut(&(3..5)).fill(1.0);
        let _lent = buffer.lend(&(4..8));
        buffer.slice_mut(&(3..5)).fill(1.0);
    }

    #[test]
    #[should_panic(expected = "elements 0..4 were lent by another buffer")]
    fn shared_buffer_takes_back_its_own_ranges_only() {
        let arena = arena();
        let [mut one, mut other] =
            [0; 2].map(|_| SharedBuffer::new(Buffer::<f32>::zeros(&arena, 8).unwrap()));
        other.restore(one.lend(&(0..4)));
    }
}

//! Buffers in the segment, and the part of a buffer that operations in progress use.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

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

    /// Converts the buffer to elements of another type, as many as fit.
    #[cfg(feature = "nccl")]
    pub(crate) fn cast<U: Element>(self) -> Buffer<U> {
        Buffer { window: self.window.cast() }
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

/// Buffer of which some ranges are lent to operations in progress while the owner uses the rest.
#[derive(Debug)]
pub(crate) struct SharedBuffer<T: Element> {
    buffer: Buffer<T>,
    lent: Vec<Range<usize>>,
}

impl<T: Element> SharedBuffer<T> {
    pub(crate) fn new(buffer: Buffer<T>) -> Self {
        Self { buffer, lent: Vec::new() }
    }

    /// Lends a range, which must not be lent or accessed again until [`Self::reclaim_all`].
    pub(crate) fn lend(&mut self, range: &Range<usize>) -> Window<T> {
        self.assert_free(range);
        self.lent.push(range.clone());
        self.buffer.window.part(range)
    }

    /// Ends all lending; no operation may be in progress.
    pub(crate) fn reclaim_all(&mut self) {
        self.lent.clear();
    }

    /// Whether any element of a range is lent.
    pub(crate) fn is_lent(&self, range: &Range<usize>) -> bool {
        self.lent.iter().any(|lent| lent.start < range.end && range.start < lent.end)
    }

    fn assert_free(&self, range: &Range<usize>) {
        assert!(!self.is_lent(range), "elements {range:?} are being reduced already");
    }

    /// Elements of a range of which no element is lent. Panics if one is.
    pub(crate) fn slice_mut(&mut self, range: &Range<usize>) -> &mut [T] {
        self.assert_free(range);
        // SAFETY: in bounds and aligned; the range is not lent, and the slice borrows `self`, so it
        // cannot be lent while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.window.address(range), range.len()) }
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
        let _window = buffer.lend(&(4..8));
        buffer.slice_mut(&(0..4)).fill(1.0);
        buffer.slice_mut(&(3..5)).fill(1.0);
    }
}

//! Data in the segment: owned buffers, and windows through which an operation reads and writes the
//! data of every rank of the node.
//!
//! Access is governed by the schedule, not by the borrow checker: between the barrier that begins a
//! round and the one that ends it, only the rank of the node to which a position is assigned
//! accesses it; outside of rounds, only the owner of the buffer does. The backend calls all
//! functions of this file under that rule, and every `SAFETY` comment depends on it.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use crate::os::cpu::simd;
use crate::runtime::comm::shm::arena::Allocation;
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::dtype::element::Element;

/// Range of elements in the segment, in memory of any rank of the node.
pub(crate) struct Window<T> {
    segment: Arc<Segment>,
    /// Keeps the memory from being freed while an operation is in progress.
    memory: Option<Arc<Allocation>>,
    offset: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Clone for Window<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            segment: self.segment.clone(),
            memory: self.memory.clone(),
            offset: self.offset,
            len: self.len,
            element: PhantomData,
        }
    }
}

impl<T: Element> Window<T> {
    /// Creates a window; `None` if the range, which a peer has published, is outside the segment or
    /// not aligned.
    #[inline]
    pub(crate) fn new(segment: &Arc<Segment>, offset: usize, len: usize) -> Option<Self> {
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| offset.checked_add(bytes))?;
        let is_valid = end <= segment.mapping().bytes() && offset.is_multiple_of(align_of::<T>());
        is_valid.then(|| Self {
            segment: segment.clone(),
            memory: None,
            offset,
            len,
            element: PhantomData,
        })
    }

    /// Window on memory of a caller; `None` if it is outside the segment. The caller keeps the memory.
    pub(crate) fn on_slice(segment: &Arc<Segment>, values: &[T]) -> Option<Self> {
        let offset = segment.offset_of(&values.as_ptr_range())?;
        Self::new(segment, offset, values.len())
    }

    /// Window on `len` elements from the beginning of an allocation, which lives as long as the window.
    pub(crate) fn on_allocation(allocation: Allocation, len: usize) -> Self {
        Self {
            segment: allocation.segment().clone(),
            offset: allocation.offset(),
            memory: Some(Arc::new(allocation)),
            len,
            element: PhantomData,
        }
    }

    /// Converts a window on a whole allocation to elements of another type, as many as fit.
    #[cfg(feature = "nccl")]
    pub(crate) fn cast<U: Element>(self) -> Window<U> {
        let Self { segment, memory, offset, len, .. } = self;
        let len = len * size_of::<T>() / size_of::<U>();
        // Allocations begin at pages, and all bits are valid for every element type: it is plain old
        // data.
        Window { segment, memory, offset, len, element: PhantomData }
    }

    /// Number of elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the window lies in the same mapping as a segment.
    pub(crate) fn is_within(&self, segment: &Segment) -> bool {
        std::ptr::eq(self.segment.mapping(), segment.mapping())
    }

    /// Offset of the window in the segment, in bytes.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Window on a part of this one.
    #[inline]
    pub(crate) fn part(&self, range: &Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies inside the whole");
        let offset = self.offset + range.start * size_of::<T>();
        Self { offset, len: range.len(), ..self.clone() }
    }

    #[inline]
    pub(super) fn address(&self, range: &Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies inside the whole");
        // SAFETY: construction checked that the window lies inside the mapping.
        unsafe {
            self.segment.mapping().base().as_ptr().add(self.offset).cast::<T>().add(range.start)
        }
    }

    /// Copies `values` to position `at`.
    pub(crate) fn write(&self, at: usize, values: &[T]) {
        let to = self.address(&(at..at + values.len()));
        // SAFETY: in bounds; by the rule of this module only this rank accesses the positions now. They
        // cannot overlap `values`, which is a slice that the caller borrows from its owner.
        unsafe { simd::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
    }

    /// Copies the elements from position `at` on into `values`.
    pub(crate) fn read(&self, at: usize, values: &mut [T]) {
        let from = self.address(&(at..at + values.len()));
        // SAFETY: as for `write`; by the rule no rank writes these positions now.
        unsafe { simd::copy_nonoverlapping(from.cast_const(), values.as_mut_ptr(), values.len()) };
    }

    /// Copies all of `source`, which has the same length.
    pub(crate) fn copy_from(&self, source: &Self) {
        self.write(0, source.as_slice(&(0..self.len)));
    }

    /// Elements at some positions; the slice must not be used after the round.
    #[inline]
    pub(super) fn as_slice(&self, range: &Range<usize>) -> &[T] {
        // SAFETY: in bounds and aligned; by the rule no other rank writes these positions, and the
        // caller writes them only after the last use of the slice.
        unsafe { std::slice::from_raw_parts(self.address(range), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_outside_the_segment_is_rejected() {
        let segment = Segment::attach(Segment::create(1).unwrap()).unwrap();
        let bytes = segment.mapping().bytes();
        assert!(Window::<f32>::new(&segment, bytes - 4, 1).is_some());
        assert!(Window::<f32>::new(&segment, bytes - 4, 2).is_none());
        assert!(Window::<f32>::new(&segment, 2, 1).is_none());
        assert!(Window::<f32>::new(&segment, usize::MAX - 3, usize::MAX).is_none());
    }
}

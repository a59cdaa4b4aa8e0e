//! Data in the segment: owned buffers, and windows through which an operation reads and writes the
//! data of every rank of the node.
//!
//! Access is governed by the schedule, not by the borrow checker: between the barrier that begins a
//! round and the one that ends it, only the rank of the node to which a position is assigned
//! accesses it; outside of rounds, only the owner of the buffer does. The engine calls all
//! functions of this file under that rule, and every `SAFETY` comment depends on it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::error::Error;
use crate::runtime::schedule::blocks;
use crate::runtime::shm::Segment;
use crate::runtime::tree::{Fold, Operand, Step};

const PAGE: usize = 4096;

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

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the window lies in the same mapping as a segment.
    pub(crate) fn is_within(&self, segment: &Segment) -> bool {
        std::ptr::eq(self.segment.mapping(), segment.mapping())
    }

    /// Offset of the window in the segment, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Window on a part of this one.
    pub(crate) fn part(&self, range: &Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies inside the whole");
        let offset = self.offset + range.start * size_of::<T>();
        Self { offset, len: range.len(), ..self.clone() }
    }

    fn address(&self, range: &Range<usize>) -> *mut T {
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
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
    }

    /// Copies the elements from position `at` on into `values`.
    pub(crate) fn read(&self, at: usize, values: &mut [T]) {
        let from = self.address(&(at..at + values.len()));
        // SAFETY: as for `write`; by the rule no rank writes these positions now.
        unsafe { std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), values.len()) };
    }

    /// Copies all of `source`, which has the same length.
    pub(crate) fn copy_from(&self, source: &Self) {
        self.write(0, source.as_slice(&(0..self.len)));
    }

    /// Elements at some positions; the slice must not be used after the round.
    fn as_slice(&self, range: &Range<usize>) -> &[T] {
        // SAFETY: in bounds and aligned; by the rule no other rank writes these positions, and the
        // caller writes them only after the last use of the slice.
        unsafe { std::slice::from_raw_parts(self.address(range), range.len()) }
    }
}

/// Size in bytes of a scratch buffer: a few of them, and as many bytes of every rank's data, fit a
/// first-level cache.
const BLOCK_BYTES: usize = 2048;
const BLOCK_WORDS: usize = BLOCK_BYTES / 8;

/// Scratch buffers for folding, for any element type.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    words: Vec<u64>,
}

impl Workspace {
    /// Number of elements that are folded at a time.
    pub(crate) const fn block<T: Element>() -> usize {
        BLOCK_BYTES / size_of::<T::Sum>()
    }

    /// Folds sources of `len` elements, at most a block, into the first scratch buffer and returns
    /// it.
    pub(crate) fn fold<'s, T: Element>(
        &mut self,
        fold: &Fold,
        op: ReduceOp,
        len: usize,
        source: &dyn Fn(usize) -> &'s [T],
    ) -> &mut [T::Sum] {
        self.words.resize(fold.scratch.max(1) * BLOCK_WORDS, 0);
        for step in &fold.steps {
            self.combine(*step, op, len, source);
        }
        let result = &mut bytemuck::cast_slice_mut(&mut self.words)[..len];
        if let Operand::Source(index) = fold.result {
            T::widen(source(index), result);
        }
        result
    }

    fn combine<'s, T: Element>(
        &mut self,
        step: Step,
        op: ReduceOp,
        len: usize,
        source: &dyn Fn(usize) -> &'s [T],
    ) {
        let (before, after) = self.words.split_at_mut((step.into + 1) * BLOCK_WORDS);
        let into = &mut before[step.into * BLOCK_WORDS..];
        let into = &mut bytemuck::cast_slice_mut(into)[..len];
        match (step.left, step.right) {
            (Operand::Source(left), Operand::Source(right)) => {
                T::combine(op, into, source(left), source(right));
            }
            (Operand::Scratch(_), Operand::Source(right)) => {
                T::combine_left(op, into, source(right));
            }
            (Operand::Source(left), Operand::Scratch(_)) => {
                T::combine_right(op, source(left), into);
            }
            // A fold has its left operand in `into` and its right one in the next scratch buffer.
            (Operand::Scratch(_), Operand::Scratch(_)) => {
                T::Sum::combine_left(op, into, &bytemuck::cast_slice(after)[..len]);
            }
        }
    }
}

/// Folds one block of the windows.
pub(crate) fn fold_windows<'w, T: Element>(
    workspace: &'w mut Workspace,
    fold: &Fold,
    op: ReduceOp,
    windows: &[Window<T>],
    block: &Range<usize>,
) -> &'w mut [T::Sum] {
    workspace.fold(fold, op, block.len(), &|index| windows[index].as_slice(block))
}

/// Folds a range of the windows into a target, block by block. The data of a single rank is copied
/// at once.
pub(crate) fn fold_windows_into<T: Element>(
    workspace: &mut Workspace,
    fold: &Fold,
    op: ReduceOp,
    windows: &[Window<T>],
    range: &Range<usize>,
    into: &mut [T::Sum],
) {
    if let Operand::Source(index) = fold.result {
        return T::widen(windows[index].as_slice(range), into);
    }
    for block in blocks(range.clone(), Workspace::block::<T>()) {
        let at = block.start - range.start;
        let sum = fold_windows(workspace, fold, op, windows, &block);
        into[at..at + sum.len()].copy_from_slice(sum);
    }
}

/// Allocator of a rank's arena, first fit; adjacent free ranges are merged. All groups of a rank
/// share it.
#[derive(Debug)]
pub(crate) struct Arena {
    segment: Arc<Segment>,
    free: Mutex<Vec<Range<usize>>>,
    /// Segments of subgroups of the arena's group.
    subgroups: Mutex<Vec<SubgroupSegment>>,
    /// Whether a subgroup that no longer exists has failed.
    has_failed_subgroup: AtomicBool,
}

/// Segment of a subgroup, as long as its memory is needed.
#[derive(Debug)]
struct SubgroupSegment {
    segment: Arc<Segment>,
    /// Its range, if it is in this rank's arena.
    range: Option<Range<usize>>,
    /// Whether this rank has left it.
    is_left: bool,
}

/// Lease of a subgroup's segment by a rank; its drop counts the rank as having left the subgroup.
#[derive(Debug)]
pub(crate) struct SegmentLease {
    arena: Arc<Arena>,
    segment: Arc<Segment>,
}

impl Drop for SegmentLease {
    fn drop(&mut self) {
        self.segment.leave();
        let mut parts = self.arena.subgroups.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts.iter_mut().filter(|part| Arc::ptr_eq(&part.segment, &self.segment)) {
            part.is_left = true;
        }
        drop(parts);
        self.arena.free_unused_subgroups();
    }
}

/// Range of an arena that is freed when it is dropped.
#[derive(Debug)]
struct Allocation {
    arena: Arc<Arena>,
    range: Range<usize>,
}

impl Arena {
    pub(crate) fn new(segment: &Arc<Segment>, local: usize) -> Arc<Self> {
        let (offset, bytes) = segment.arena(local);
        let free = Mutex::new(std::iter::once(offset..offset + bytes).collect());
        Arc::new(Self {
            segment: segment.clone(),
            free,
            subgroups: Mutex::default(),
            has_failed_subgroup: AtomicBool::new(false),
        })
    }

    /// Allocates memory for the segment of a subgroup, and writes its header.
    pub(crate) fn allocate_subgroup(&self, local_world: usize) -> Result<Range<usize>, Error> {
        self.free_unused_subgroups();
        let range = self.allocate_range(Segment::subgroup_bytes(local_world))?;
        self.segment.create_subgroup(range.start, local_world);
        Ok(range)
    }

    /// Leases the segment of a subgroup; its memory is freed when all ranks have left it. If there is
    /// no segment, there is no lease, and the memory is freed at once.
    pub(crate) fn lease(
        self: &Arc<Self>,
        segment: Option<&Arc<Segment>>,
        range: Option<Range<usize>>,
    ) -> Option<SegmentLease> {
        let Some(segment) = segment.cloned() else {
            if let Some(range) = range {
                self.zero_and_free(range);
            }
            return None;
        };
        let part = SubgroupSegment { segment: segment.clone(), range, is_left: false };
        self.subgroups.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        Some(SegmentLease { arena: self.clone(), segment })
    }

    /// Frees the segments of subgroups that all ranks have left.
    fn free_unused_subgroups(&self) {
        let mut parts = self.subgroups.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|part| {
            if part.is_left && part.segment.abort_record().is_some() {
                // A late peer may still access the segment, so its memory is not freed.
                self.has_failed_subgroup.store(true, Relaxed);
                return false;
            }
            let is_unused = part.is_left && (part.range.is_none() || part.segment.is_left_by_all());
            if let Some(range) = part.range.clone().filter(|_| is_unused) {
                self.zero_and_free(range);
            }
            !is_unused
        });
    }

    /// Whether a late peer of a failed group may still write to memory of this arena.
    fn may_be_written(&self) -> bool {
        let parts = self.subgroups.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_failed_subgroup.load(Relaxed)
            || self.segment.abort_record().is_some()
            || parts.iter().any(|part| part.segment.abort_record().is_some())
    }

    /// Zeroes a range and frees it.
    fn zero_and_free(&self, range: Range<usize>) {
        let (offset, bytes) = (range.start, range.len());
        let mapping = self.segment.mapping();
        if mapping.discard(offset as u64, bytes as u64).is_err() {
            // SAFETY: the range belonged to this rank alone and there is no reference to it any more.
            unsafe { mapping.base().as_ptr().add(offset).write_bytes(0, bytes) };
        }
        self.add_free_range(range);
    }

    /// Allocates a buffer of zeros.
    pub(crate) fn alloc<T: Element>(self: &Arc<Self>, len: usize) -> Result<Buffer<T>, Error> {
        let range = self.allocate_range(len.saturating_mul(size_of::<T>()))?;
        let allocation = Allocation { arena: self.clone(), range: range.clone() };
        let window = Window {
            segment: self.segment.clone(),
            memory: Some(Arc::new(allocation)),
            offset: range.start,
            len,
            element: PhantomData,
        };
        Ok(Buffer { window })
    }

    /// Allocates a range of at least `bytes`, in whole pages.
    fn allocate_range(&self, bytes: usize) -> Result<Range<usize>, Error> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let available = free.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let out_of_memory = Error::OutOfMemory { bytes, available };
        let len = match bytes.max(1).checked_next_multiple_of(PAGE) {
            Some(len) if len <= available => len,
            _ => return Err(out_of_memory),
        };
        let index = free.iter().position(|range| len <= range.len()).ok_or(out_of_memory)?;
        let start = free[index].start;
        free[index].start += len;
        if free[index].is_empty() {
            free.remove(index);
        }
        Ok(start..start + len)
    }

    /// Adds a range to the free ones, and merges it with adjacent ones.
    fn add_free_range(&self, range: Range<usize>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.partition_point(|other| other.start < range.start);
        free.insert(at, range);
        free.dedup_by(|next, previous| {
            let joins = previous.end == next.start;
            if joins {
                previous.end = next.end;
            }
            joins
        });
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // After a failure this memory must not be reused.
        if !self.arena.may_be_written() {
            self.arena.zero_and_free(self.range.clone());
        }
    }
}

/// Buffer in the shared memory of a node, which operations do not need to copy within the node.
///
/// [`Group::alloc`](crate::runtime::Group::alloc) creates it, filled with zeros; dropping it frees it. After
/// an operation on it has failed, its contents are unspecified.
pub struct Buffer<T> {
    window: Window<T>,
}

impl<T: Element> Buffer<T> {
    pub(crate) fn window(&self) -> Window<T> {
        self.window.clone()
    }

    /// Converts the buffer to elements of another type, as many as fit.
    #[cfg(feature = "nccl")]
    pub(crate) fn cast<U: Element>(self) -> Buffer<U> {
        let Window { segment, memory, offset, len, .. } = self.window;
        let len = len * size_of::<T>() / size_of::<U>();
        // Buffers begin at pages, and all bits are valid for every element type: it is plain old
        // data.
        Buffer { window: Window { segment, memory, offset, len, element: PhantomData } }
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.window.as_slice(&(0..self.window.len))
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: in bounds and aligned. No operation is in progress: a blocking one borrows the
        // buffer, an asynchronous one owns it, and its handle returns it after the last barrier.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.window.address(&(0..self.window.len)),
                self.window.len,
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
    use crate::os::memory::resident_bytes;

    fn arena() -> Arc<Arena> {
        Arena::new(&Segment::attach(Segment::create(1).unwrap()).unwrap(), 0)
    }

    #[test]
    fn arena_returns_freed_memory_to_the_kernel() {
        let arena = arena();
        let resident = || resident_bytes(arena.segment.mapping().fd()).unwrap();
        let before = resident();
        let mut buffer = arena.alloc::<f64>(100_000).unwrap();
        buffer.fill(1.0);
        assert!(before + 800_000 <= resident());
        drop(buffer);
        assert_eq!(resident(), before);
        assert!(arena.alloc::<f64>(100_000).unwrap().iter().all(|value| *value == 0.0));
        assert_eq!(arena.free.lock().unwrap().len(), 1, "adjacent ranges are merged");
    }

    #[test]
    fn arena_without_room_is_an_error() {
        let arena = arena();
        assert!(matches!(arena.alloc::<f64>(usize::MAX), Err(Error::OutOfMemory { .. })));
        assert_eq!(arena.alloc::<u8>(0).unwrap().len(), 0);
    }

    #[test]
    fn window_outside_the_segment_is_rejected() {
        let segment = Segment::attach(Segment::create(1).unwrap()).unwrap();
        let bytes = segment.mapping().bytes();
        assert!(Window::<f32>::new(&segment, bytes - 4, 1).is_some());
        assert!(Window::<f32>::new(&segment, bytes - 4, 2).is_none());
        assert!(Window::<f32>::new(&segment, 2, 1).is_none());
        assert!(Window::<f32>::new(&segment, usize::MAX - 3, usize::MAX).is_none());
    }

    #[test]
    #[should_panic(expected = "elements 3..5 are being reduced already")]
    fn shared_buffer_rejects_access_to_lent_ranges() {
        let mut buffer = SharedBuffer::new(arena().alloc::<f32>(8).unwrap());
        let _window = buffer.lend(&(4..8));
        buffer.slice_mut(&(0..4)).fill(1.0);
        buffer.slice_mut(&(3..5)).fill(1.0);
    }

    #[test]
    fn fold_of_slices_equals_fold_of_elements() {
        let values: Vec<Vec<f32>> = (0..7).map(|rank| vec![0.1 * rank as f32; 5]).collect();
        let sources: Vec<&[f32]> = values.iter().map(Vec::as_slice).collect();
        let mut workspace = Workspace::default();
        let sum = workspace.fold(&Fold::of(7), ReduceOp::Sum, 5, &|rank| sources[rank]).to_vec();
        let v = |rank: usize| values[rank][0];
        let expect = ((v(0) + v(1)) + (v(2) + v(3))) + ((v(4) + v(5)) + v(6));
        assert_eq!(sum, [expect; 5]);
    }
}

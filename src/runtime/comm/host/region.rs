//! Memory arguments of operations, and how a round accesses them.

use std::ops::Range;
use std::sync::Arc;

use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::shm::buffer::{Buffer, Lent};
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;

/// Memory of the elements of a call.
#[doc(hidden)]
pub enum CallMemory<'a, T> {
    /// Memory of the process; staged through the segment.
    Slice(&'a mut [T]),
    /// Several slices, treated as one after the other.
    Slices(Vec<&'a mut [T]>),
    /// Memory in the segment; read in place.
    Shared(SharedMemory<T>),
}

/// Range of a buffer in the segment.
#[doc(hidden)]
pub struct SharedMemory<T>(pub(crate) Window<T>);

impl<T: Element> SharedMemory<T> {
    /// Fails for a buffer of a group that shares no memory with the group of `segment`.
    fn check_segment(&self, segment: &Segment) -> Result<(), Cause> {
        if self.0.is_within(segment) {
            return Ok(());
        }
        Err(Cause::Argument("the buffer belongs to another group".to_owned()))
    }
}

/// Memory of a call that the operation only reads.
pub(crate) enum SourceMemory<'a, T> {
    /// Memory of the process; staged through the segment.
    Slice(&'a [T]),
    /// Memory in the segment; read in place.
    Shared(SharedMemory<T>),
}

impl<'a, T: Element> SourceMemory<'a, T> {
    /// Memory of a lent range; read in place if it lies in `segment`.
    pub(crate) fn of(lent: &'a Lent<T>, segment: &Segment) -> Self {
        let window = lent.window();
        if window.is_within(segment) {
            Self::Shared(SharedMemory(window))
        } else {
            Self::Slice(lent)
        }
    }

    /// Memory of the caller of an operation; read in place if it lies in `segment`.
    pub(crate) fn of_caller(values: &'a [T], segment: &Arc<Segment>) -> Self {
        match Window::on_slice(segment, values) {
            Some(window) => Self::Shared(SharedMemory(window)),
            None => Self::Slice(values),
        }
    }

    /// Number of elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Slice(values) => values.len(),
            Self::Shared(SharedMemory(window)) => window.len(),
        }
    }

    /// Fails for a buffer of a group that shares no memory with the group of `segment`.
    pub(crate) fn check_segment(&self, segment: &Segment) -> Result<(), Cause> {
        match self {
            Self::Slice(_) => Ok(()),
            Self::Shared(memory) => memory.check_segment(segment),
        }
    }

    /// Copies a range to the beginning of `target`.
    pub(crate) fn copy_to(&self, range: &Range<usize>, target: &Window<T>) {
        match self {
            Self::Slice(values) => target.write(0, &values[range.clone()]),
            Self::Shared(SharedMemory(window)) => {
                target.part(&(0..range.len())).copy_from(&window.part(range));
            }
        }
    }
}

impl<'a, T: Element> CallMemory<'a, T> {
    /// Memory of a lent range; used in place if it lies in `segment`.
    pub(crate) fn of(lent: &'a mut Lent<T>, segment: &Segment) -> Self {
        let window = lent.window();
        if window.is_within(segment) {
            Self::Shared(SharedMemory(window))
        } else {
            Self::Slice(lent)
        }
    }

    /// Memory of the caller of an operation; used in place if it lies in `segment`.
    pub(crate) fn of_caller(values: &'a mut [T], segment: &Arc<Segment>) -> Self {
        match Window::on_slice(segment, values) {
            Some(window) => Self::Shared(SharedMemory(window)),
            None => Self::Slice(values),
        }
    }
}

impl<T: Element> CallMemory<'_, T> {
    /// Number of elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Slice(values) => values.len(),
            Self::Slices(slices) => slices.iter().map(|values| values.len()).sum(),
            Self::Shared(SharedMemory(window)) => window.len(),
        }
    }

    /// Fails for a buffer of a group that shares no memory with the group of `segment`.
    pub(crate) fn check_segment(&self, segment: &Segment) -> Result<(), Cause> {
        match self {
            Self::Shared(memory) => memory.check_segment(segment),
            Self::Slice(_) | Self::Slices(_) => Ok(()),
        }
    }

    /// Position of the data of a round: in the buffer itself, or in `staging`, to which it is
    /// copied.
    pub(crate) fn stage_in(&self, range: &Range<usize>, staging: &Window<T>) -> BufferLocation {
        match self {
            Self::Shared(SharedMemory(window)) => {
                BufferLocation::Direct(window.part(range).offset())
            }
            Self::Slice(_) | Self::Slices(_) => {
                self.copy_to(range, staging);
                BufferLocation::Staged(staging.offset())
            }
        }
    }

    /// Copies a range to the beginning of `target`.
    pub(crate) fn copy_to(&self, range: &Range<usize>, target: &Window<T>) {
        match self {
            Self::Slice(values) => target.write(0, &values[range.clone()]),
            Self::Slices(slices) => {
                for Piece { slice, within, at } in pieces(slices, range) {
                    target.write(at, &slices[slice][within]);
                }
            }
            Self::Shared(SharedMemory(window)) => {
                target.part(&(0..range.len())).copy_from(&window.part(range));
            }
        }
    }

    /// Copies the result of a round from `staging`; for a buffer in the segment it is in place
    /// already.
    pub(crate) fn stage_out(&mut self, range: &Range<usize>, staging: &Window<T>) {
        match self {
            Self::Slice(_) | Self::Slices(_) => {
                self.copy_from(range.start, &staging.part(&(0..range.len())));
            }
            Self::Shared(_) => {}
        }
    }

    /// Copies all of `source` to position `at`.
    pub(crate) fn copy_from(&mut self, at: usize, source: &Window<T>) {
        match self {
            Self::Slice(values) => source.read(0, &mut values[at..at + source.len()]),
            Self::Slices(slices) => {
                for Piece { slice, within, at } in pieces(slices, &(at..at + source.len())) {
                    source.read(at, &mut slices[slice][within]);
                }
            }
            Self::Shared(SharedMemory(window)) => {
                window.part(&(at..at + source.len())).copy_from(source);
            }
        }
    }

    /// Copies `block` to position `at`.
    pub(crate) fn write(&mut self, at: usize, block: &[T]) {
        match self {
            Self::Slice(values) => values[at..at + block.len()].copy_from_slice(block),
            Self::Slices(slices) => {
                for Piece { slice, within, at } in pieces(slices, &(at..at + block.len())) {
                    let len = within.len();
                    slices[slice][within].copy_from_slice(&block[at..at + len]);
                }
            }
            Self::Shared(SharedMemory(window)) => window.write(at, block),
        }
    }
}

/// Part of a range over several slices: index of the slice, position in it, position in the range.
struct Piece {
    slice: usize,
    within: Range<usize>,
    at: usize,
}

/// Parts of a range over slices that are treated as one after the other.
fn pieces<T>(slices: &[&mut [T]], range: &Range<usize>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (slice, values) in slices.iter().enumerate() {
        let end = start + values.len();
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            pieces.push(Piece { slice, within: from - start..to - start, at: from - range.start });
        }
        start = end;
    }
    pieces
}

/// Operation on a sum before it is written to the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostOp {
    Keep,
    Divide(u64),
}

impl PostOp {
    pub(crate) fn of(reduction: DividedReduction) -> Self {
        if reduction.divisor == 1 { Self::Keep } else { Self::Divide(reduction.divisor) }
    }

    pub(crate) fn apply<T: Element>(self, values: &mut [T]) {
        match self {
            Self::Keep => {}
            Self::Divide(parts) => T::divide(values, parts),
        }
    }
}

/// Memory whose contents an operation can replace.
pub trait Region {
    /// Type of its elements.
    type Element: Element;

    #[doc(hidden)]
    fn memory(&mut self) -> CallMemory<'_, Self::Element>;
}

impl<T: Element> Region for [T] {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        CallMemory::Slice(self)
    }
}

impl<T: Element, const N: usize> Region for [T; N] {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        CallMemory::Slice(self)
    }
}

/// Several slices are one operation on all of their elements, with one synchronization instead of
/// many.
impl<T: Element> Region for [&mut [T]] {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        CallMemory::Slices(self.iter_mut().map(|values| &mut **values).collect())
    }
}

impl<T: Element, const N: usize> Region for [&mut [T]; N] {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        self.as_mut_slice().memory()
    }
}

impl<T: Element> Region for Vec<&mut [T]> {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        self.as_mut_slice().memory()
    }
}

impl<T: Element> Region for Vec<T> {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        CallMemory::Slice(self)
    }
}

impl<T: Element> Region for Buffer<T> {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        CallMemory::Shared(SharedMemory(self.window()))
    }
}

impl<T: Element> Region for Lent<T> {
    type Element = T;

    #[inline]
    fn memory(&mut self) -> CallMemory<'_, T> {
        CallMemory::Shared(SharedMemory(self.window()))
    }
}

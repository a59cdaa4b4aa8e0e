//! [`Gradients`]: the gradient of one micro-batch while the backward pass writes it.

use std::ops::Range;

use crate::runtime::comm::collectives::{GradientCollectives, HostMemory};
use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::GradientElement;
use crate::runtime::error::Result;
use crate::runtime::parallel::ddp::reducer::BucketReducer;

/// Flat gradient of one micro-batch: initially zero, written by the backward pass, which calls
/// [`Self::ready`] for each range that is final.
///
/// In the last micro-batch of a step, a bucket is reduced as soon as all of its ranges are ready, while
/// the backward pass continues. A range that is ready can no longer be accessed.
pub struct Gradients<'a, T: GradientElement, C: GradientCollectives<T> = Group> {
    target: GradientTarget<'a, T, C>,
    len: usize,
    ready: Vec<Range<usize>>,
}

/// Memory into which the gradient of a micro-batch is written.
pub(crate) enum GradientTarget<'a, T: GradientElement, C: GradientCollectives<T>> {
    /// Memory of the rank alone, because more micro-batches follow.
    Private(&'a mut C::Scratch),
    /// Memory from which buckets are reduced.
    Shared(BucketReducer<'a, T, C>),
}

/// Memory of a gradient that the processor can access.
impl<T: GradientElement, C: GradientCollectives<T>> Gradients<'_, T, C>
where
    C::Scratch: HostMemory<T>,
    C::Buffer: HostMemory<T>,
{
    /// Returns the whole gradient.
    ///
    /// # Panics
    /// If a part of it is already ready.
    pub fn flat(&mut self) -> &mut [T] {
        self.range(0..self.len)
    }

    /// Returns a range of the gradient.
    ///
    /// # Panics
    /// If a part of it is already ready.
    pub fn range(&mut self, range: Range<usize>) -> &mut [T] {
        self.assert_not_ready(&range);
        self.target.slice_mut(&range)
    }

    /// Returns several ranges, which must not overlap.
    ///
    /// # Panics
    /// If ranges overlap or a part of one is already ready.
    pub fn ranges<const N: usize>(&mut self, ranges: [Range<usize>; N]) -> [&mut [T]; N] {
        let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(start);
        for range in &ranges {
            self.assert_not_ready(range);
        }
        let whole = self.target.slice_mut(&(start..end));
        let inside = ranges.map(|range| range.start - start..range.end - start);
        whole.get_disjoint_mut(inside).expect("ranges of a gradient do not overlap")
    }
}

impl<'a, T: GradientElement, C: GradientCollectives<T>> Gradients<'a, T, C> {
    pub(crate) fn new(target: GradientTarget<'a, T, C>, len: usize) -> Self {
        Self { target, len, ready: Vec::new() }
    }

    /// Returns the memory of the micro-batch, for kernels of a device. They may write the elements that are
    /// not marked as ready.
    pub fn memory(&mut self) -> GradientMemory<'_, T, C> {
        match &mut self.target {
            GradientTarget::Private(flat) => GradientMemory::Scratch(&mut **flat),
            GradientTarget::Shared(reducer) => GradientMemory::Buffer(reducer.gradient),
        }
    }

    /// Marks a range as final.
    ///
    /// # Panics
    /// If a part of it is already ready.
    pub fn ready(&mut self, range: Range<usize>) {
        assert!(range.end <= self.len, "elements {range:?} are outside the gradient");
        self.assert_not_ready(&range);
        if range.is_empty() {
            return;
        }
        if let GradientTarget::Shared(reducer) = &mut self.target {
            reducer.on_ready(&range);
        }
        self.ready.push(range);
    }

    /// Returns whether a bucket of this step has already been reduced; for tests of overlap.
    pub fn is_reduced(&self, bucket: usize) -> bool {
        match &self.target {
            GradientTarget::Private(_) => false,
            GradientTarget::Shared(reducer) => reducer.is_reduced(bucket),
        }
    }

    /// Announces all ranges that the backward pass has not announced as ready.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.ready.sort_by_key(|range| range.start);
        let mut end = self.len;
        for range in std::mem::take(&mut self.ready).into_iter().rev() {
            self.ready(range.end..end);
            end = range.start;
        }
        self.ready(0..end);
        match &mut self.target {
            GradientTarget::Private(_) => Ok(()),
            GradientTarget::Shared(reducer) => reducer.take_failure(),
        }
    }

    fn assert_not_ready(&self, range: &Range<usize>) {
        let touches = |ready: &&Range<usize>| ready.start < range.end && range.start < ready.end;
        if let Some(ready) = self.ready.iter().find(touches) {
            panic!(
                "elements {range:?} of the gradient overlap {ready:?}, which are marked as ready"
            );
        }
    }
}

/// Memory of a micro-batch.
pub enum GradientMemory<'a, T: GradientElement, C: GradientCollectives<T>> {
    /// Memory of the rank alone.
    Scratch(&'a mut C::Scratch),
    /// Memory from which ranges are lent to reductions.
    Buffer(&'a mut C::Buffer),
}

impl<T: GradientElement, C: GradientCollectives<T>> GradientTarget<'_, T, C>
where
    C::Scratch: HostMemory<T>,
    C::Buffer: HostMemory<T>,
{
    fn slice_mut(&mut self, range: &Range<usize>) -> &mut [T] {
        match self {
            Self::Private(flat) => flat.slice_mut(range),
            Self::Shared(reducer) => reducer.gradient.slice_mut(range),
        }
    }
}

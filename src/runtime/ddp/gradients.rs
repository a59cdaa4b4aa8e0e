//! Gradient of one micro-batch while the backward pass writes it.

use std::ops::Range;

use crate::runtime::ddp::parallel::Launcher;
use crate::runtime::element::Float;

/// The flat gradient of one micro-batch: zero at first, written by backward, announced range by
/// range when it is final.
///
/// In the micro-batch that completes a step, a bucket is reduced as soon as all of it is announced,
/// while backward goes on; what was announced cannot be touched any more.
pub struct Gradients<'a, T: Float> {
    target: Target<'a, T>,
    len: usize,
    ready: Vec<Range<usize>>,
}

/// Memory into which the gradient of a micro-batch is written.
pub(crate) enum Target<'a, T: Float> {
    /// Memory of the rank alone, because more micro-batches follow.
    Private(&'a mut [T]),
    /// Memory from which buckets are reduced.
    Shared(Launcher<'a, T>),
}

impl<'a, T: Float> Gradients<'a, T> {
    pub(crate) fn new(target: Target<'a, T>, len: usize) -> Self {
        Self { target, len, ready: Vec::new() }
    }

    /// The whole gradient.
    ///
    /// # Panics
    /// When a part of it was announced.
    pub fn flat(&mut self) -> &mut [T] {
        self.range(0..self.len)
    }

    /// A range of the gradient.
    ///
    /// # Panics
    /// When a part of it was announced.
    pub fn range(&mut self, range: Range<usize>) -> &mut [T] {
        self.assert_open(&range);
        match &mut self.target {
            Target::Private(flat) => &mut flat[range],
            Target::Shared(launcher) => launcher.slice_mut(&range),
        }
    }

    /// Several ranges at once, which must not overlap.
    ///
    /// # Panics
    /// When ranges overlap or a part of one was announced.
    pub fn ranges<const N: usize>(&mut self, ranges: [Range<usize>; N]) -> [&mut [T]; N] {
        let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(start);
        for range in &ranges {
            self.assert_open(range);
        }
        let whole = match &mut self.target {
            Target::Private(flat) => &mut flat[start..end],
            Target::Shared(launcher) => launcher.slice_mut(&(start..end)),
        };
        let inside = ranges.map(|range| range.start - start..range.end - start);
        whole.get_disjoint_mut(inside).expect("ranges of a gradient do not overlap")
    }

    /// Announces that backward is done with a range.
    ///
    /// # Panics
    /// When a part of it was announced before.
    pub fn ready(&mut self, range: Range<usize>) {
        assert!(range.end <= self.len, "elements {range:?} are outside the gradient");
        self.assert_open(&range);
        if range.is_empty() {
            return;
        }
        if let Target::Shared(launcher) = &mut self.target {
            launcher.announce(&range);
        }
        self.ready.push(range);
    }

    /// Whether a bucket of this step has been reduced already; to prove overlap.
    pub fn is_reduced(&self, bucket: usize) -> bool {
        match &self.target {
            Target::Private(_) => false,
            Target::Shared(launcher) => launcher.is_reduced(bucket),
        }
    }

    /// Announces all ranges that the backward pass has not announced as ready.
    pub(crate) fn finish(mut self) {
        self.ready.sort_by_key(|range| range.start);
        let mut end = self.len;
        for range in std::mem::take(&mut self.ready).into_iter().rev() {
            self.ready(range.end..end);
            end = range.start;
        }
        self.ready(0..end);
    }

    fn assert_open(&self, range: &Range<usize>) {
        let touches = |ready: &&Range<usize>| ready.start < range.end && range.start < ready.end;
        if let Some(ready) = self.ready.iter().find(touches) {
            panic!("elements {range:?} of the gradient: {ready:?} was announced as ready");
        }
    }
}

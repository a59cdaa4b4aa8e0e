//! Ranges of a buffer that operations in flight use.

use std::ops::Range;

/// Ranges of a buffer that are lent, in elements.
#[derive(Debug)]
pub(crate) struct LentRanges {
    /// Number of elements of the buffer.
    len: usize,
    lent: Vec<Range<usize>>,
}

impl LentRanges {
    pub(crate) fn new(len: usize) -> Self {
        Self { len, lent: Vec::new() }
    }

    /// Lends a range.
    ///
    /// # Panics
    /// If a part of it is lent already, or it is outside the buffer.
    pub(crate) fn lend(&mut self, range: &Range<usize>) {
        self.assert_free(range);
        self.lent.push(range.clone());
    }

    /// Ends the lending of a range.
    pub(crate) fn restore(&mut self, range: &Range<usize>) {
        self.lent.retain(|other| other != range);
    }

    /// # Panics
    /// If a part of the range is lent, or it is outside the buffer.
    pub(crate) fn assert_free(&self, range: &Range<usize>) {
        assert!(range.end <= self.len, "elements {range:?} are outside the buffer");
        let is_lent = |lent: &Range<usize>| lent.start < range.end && range.start < lent.end;
        assert!(!self.lent.iter().any(is_lent), "elements {range:?} are being reduced already");
    }
}

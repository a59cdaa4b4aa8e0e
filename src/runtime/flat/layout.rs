//! [`Layout`]: the ranges of tensors in a flat buffer, and their buckets. Pure.

use std::ops::Range;

use sha2::{Digest, Sha256};

/// Names and ranges of the tensors of a model in one flat buffer, in the order of registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<(String, Range<usize>)>,
    len: usize,
}

impl Layout {
    /// Creates a layout of consecutive tensors: `(name, elements)`.
    ///
    /// # Panics
    /// If a name is used twice.
    pub fn new<N: Into<String>>(tensors: impl IntoIterator<Item = (N, usize)>) -> Self {
        let mut layout = Self { tensors: Vec::new(), len: 0 };
        for (name, elements) in tensors {
            let (name, start) = (name.into(), layout.len);
            assert!(layout.get(&name).is_none(), "tensor `{name}` is registered twice");
            layout.len += elements;
            layout.tensors.push((name, start..layout.len));
        }
        layout
    }

    /// Returns the number of elements of all tensors.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the range of a tensor, if there is one with this name.
    pub fn get(&self, name: &str) -> Option<Range<usize>> {
        self.tensors.iter().find(|(known, _)| known == name).map(|(_, range)| range.clone())
    }

    /// Returns the range of a tensor.
    ///
    /// # Panics
    /// If there is no tensor with this name.
    pub fn range(&self, name: &str) -> Range<usize> {
        self.get(name).unwrap_or_else(|| panic!("there is no tensor `{name}` in this layout"))
    }

    /// Iterates over names and ranges in the order of registration.
    pub fn tensors(&self) -> impl DoubleEndedIterator<Item = (&str, Range<usize>)> {
        self.tensors.iter().map(|(name, range)| (name.as_str(), range.clone()))
    }

    /// Digest of the layout; different layouts have different digests.
    pub(crate) fn digest(&self) -> Sha256 {
        let mut digest = Sha256::new();
        for (name, range) in &self.tensors {
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name.as_bytes());
            digest.update((range.len() as u64).to_le_bytes());
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_finds_tensors_by_name() {
        let layout = Layout::new([("weight", 12), ("bias", 1)]);
        assert_eq!(layout.range("bias"), 12..13);
        assert_eq!(layout.len(), 13);
        assert_eq!(layout.get("none"), None);
    }
}

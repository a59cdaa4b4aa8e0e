//! One round of an operation between nodes.

use std::ops::Range;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::fingerprint::Fingerprint;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;

/// Open round: the common call, and the windows of the ranks of this node.
pub(crate) struct Round<T> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) windows: Vec<Window<T>>,
    /// Number of elements of the round: those of every window, or of every part in the windows.
    pub(crate) len: usize,
    pub(crate) deadline: Deadline,
}

impl<T: Element> Round<T> {
    /// Windows on the same elements of every window.
    pub(crate) fn slices(&self, range: &Range<usize>) -> Vec<Window<T>> {
        self.windows.iter().map(|window| window.part(range)).collect()
    }
}

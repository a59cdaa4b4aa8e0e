//! One round of an operation between nodes.

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::operation::Fingerprint;
use crate::runtime::comm::shm::window::Window;

/// Open round: the common call, and the windows of the ranks of this node.
pub(crate) struct Round<T> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) windows: Vec<Window<T>>,
    /// Number of elements of every window.
    pub(crate) len: usize,
    pub(crate) deadline: Deadline,
}

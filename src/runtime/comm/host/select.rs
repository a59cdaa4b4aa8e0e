//! Choice between the algorithms for short and for long messages.

/// Limits of `InterNode::is_short`: the bytes that a node receives in total, and the number of other
/// nodes, which must be lower.
pub(crate) const SHORT_BYTES: usize = 1 << 14;

pub(crate) const SHORT_NODES_MAX: usize = 16;

/// Largest size in bytes of short data for a number of nodes; `None` if no data is short.
pub(crate) fn short_bytes_max(nodes: usize) -> Option<usize> {
    let others = nodes - 1;
    (0 < others && others < SHORT_NODES_MAX).then(|| SHORT_BYTES / others)
}

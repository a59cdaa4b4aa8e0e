//! Errors of the segment.

pub(crate) const VERSION: u32 = 6;

/// Largest number of ranks on one node.
pub(crate) const LOCAL_WORLD_MAX: usize = 1024;

/// Error of a shared memory segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// A system call failed.
    #[error("cannot {action} shared memory: {source}")]
    Os {
        /// Operation that failed.
        action: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The segment is not sealed, so another process could shrink it.
    #[error("the shared memory segment is not sealed against shrinking")]
    NotSealed,
    /// The file is not a segment, or is truncated.
    #[error("the file is not a shared memory segment of remuda, or is truncated")]
    Foreign,
    /// The launcher has a different version than the library of this program.
    #[error(
        "the launcher uses version {0} of shared memory, this program uses version {VERSION}: build the \
         program with the release of the launcher"
    )]
    Version(u32),
    /// The node has too many ranks.
    #[error("{0} ranks on one node: shared memory is for 1 to {LOCAL_WORLD_MAX} ranks")]
    TooManyRanks(usize),
}

impl From<SegmentError> for std::io::Error {
    /// Keeps the number of the kernel's error.
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Os { source, .. } => source,
            SegmentError::NotSealed
            | SegmentError::Foreign
            | SegmentError::Version(_)
            | SegmentError::TooManyRanks(_) => rustix::io::Errno::RANGE.into(),
        }
    }
}

/// No free range of the arena is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaFull {
    pub(crate) bytes: usize,
    /// Length of the largest free range, in bytes.
    pub(crate) available: usize,
}

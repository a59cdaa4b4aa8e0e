//! The first failure of a job, as ranks tell each other.

use serde::{Deserialize, Serialize};

use crate::base::Rank;
use crate::runtime::comm::core::error::Departure;

/// Lost rank, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) rank: Rank,
    pub(crate) how: Departure,
}

/// Abort of a group with its reason; the first one of an epoch is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AbortRecord {
    /// Rank that aborted the group.
    pub(crate) by: Rank,
    /// Lost rank, if one was the reason.
    pub(crate) lost: Option<Loss>,
    /// Reason as text, truncated to the cell.
    pub(crate) reason: String,
}

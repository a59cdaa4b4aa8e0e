//! How a launch ended.

use crate::base::{NodeRank, Status};

/// How a launch ended.
pub(super) struct LaunchEnd {
    pub(super) status: Status,
    /// The final screen; empty when there is nothing to report.
    pub(super) text: String,
    /// The node that was the cause of a failure.
    pub(super) cause: Option<NodeRank>,
    /// Whether another node 0 may continue the job.
    pub(super) may_be_taken_over: bool,
}

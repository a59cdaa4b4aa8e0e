//! How a launch ended.

use crate::base::{NodeRank, Status};
use crate::job::FailureCause;

/// How a launch ended.
pub(super) struct LaunchEnd {
    pub(super) status: Status,
    /// The final screen; empty when there is nothing to report.
    pub(super) text: String,
    /// The final screen as other nodes show it.
    pub(super) text_elsewhere: String,
    /// The node that was the cause of a failure.
    pub(super) cause: Option<NodeRank>,
    /// The failure that explains the end.
    pub(super) failure: Option<FailureCause>,
    /// Whether another node 0 may continue the job.
    pub(super) may_be_taken_over: bool,
}

//! How a launch ended.

use crate::base::{NodeRank, Status};
use crate::job::FailureCause;

/// How a launch ended.
pub(super) struct LaunchEnd {
    pub(super) status: Status,
    /// The final screen; empty when there is nothing to report.
    pub(super) text: String,
    /// The final screen as other nodes and the termination message show it.
    pub(super) text_elsewhere: String,
    /// The node that was the cause of a failure.
    pub(super) cause: Option<NodeRank>,
    /// The failure that explains the end.
    pub(super) failure: Option<FailureCause>,
    /// Whether another node 0 may continue the job.
    pub(super) may_be_taken_over: bool,
    /// Whether a node could not take part before all nodes had joined: those that join later wait for the job.
    pub(super) has_late_nodes: bool,
}

impl LaunchEnd {
    /// The end of a launch that no other node has joined.
    pub(super) fn before_the_start(status: Status, text: String) -> Self {
        let text_elsewhere = String::new();
        Self {
            status,
            text,
            text_elsewhere,
            cause: None,
            failure: None,
            may_be_taken_over: false,
            has_late_nodes: false,
        }
    }
}

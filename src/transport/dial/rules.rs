//! What node 0 knows about the job when a node joins it.

use std::time::Duration;

use crate::base::JobId;
use crate::secure::JobKey;

/// Conditions that a joining node must meet.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Id of the job.
    pub job: JobId,
    /// Key of the job.
    pub key: JobKey,
    /// File from which the key was read.
    pub key_file: String,
    /// Time without data after which a link counts as lost.
    pub lease: Duration,
    /// Build of this binary.
    pub build: &'static str,
    /// Digest of the plan that all nodes must have.
    pub digest: [u8; 32],
    /// The plan in lines.
    pub outline: Vec<String>,
    /// Names of all nodes, for messages.
    pub hosts: Vec<String>,
}

//! What node 0 knows about the job when a node joins it.

use std::fmt;
use std::time::Duration;

use crate::base::{JobId, NodeRank};
use crate::secure::JobKey;

/// Where the key of a job is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// A file with a secret.
    File(String),
    /// The public name of a job whose nodes have no secret in common.
    RunId(String),
}

/// The run id of nodes whose lines give none, as under torchrun.
const NO_RUN_ID: &str = "none";

impl KeyOrigin {
    /// The run id that the line gives, if it gives one.
    pub(super) fn given_run_id(&self) -> Option<&str> {
        match self {
            Self::RunId(run_id) => Some(run_id.as_str()).filter(|run_id| *run_id != NO_RUN_ID),
            Self::File(_) => None,
        }
    }

    /// What differs if node 0 closes the connections of a node without a reply.
    pub(super) fn show_difference(&self) -> &'static str {
        match self {
            Self::File(_) => "it has a different key",
            // The number of this node may be too large for node 0.
            Self::RunId(_) => "its run id, its number of nodes or its key file differs",
        }
    }

    /// What the nodes have in common, behind the word for the job: ` (run id `a`)`; empty without a run id.
    pub fn show_common(&self) -> String {
        match (self, self.given_run_id()) {
            (Self::File(path), _) => format!(" (key of `{path}`)"),
            (Self::RunId(_), Some(run_id)) => format!(" (run id `{run_id}`)"),
            (Self::RunId(_), None) => String::new(),
        }
    }

    /// Whether only nodes of the job know the key.
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.given_run_id()) {
            (Self::File(path), _) => f.write_str(path),
            (Self::RunId(_), Some(run_id)) => write!(f, "of run id {run_id}"),
            (Self::RunId(_), None) => f.write_str("of a job without a run id"),
        }
    }
}

/// Conditions that a joining node must meet.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Id of the job.
    pub job: JobId,
    /// Key of the job.
    pub key: JobKey,
    /// Where the key is from.
    pub key_origin: KeyOrigin,
    /// Time without data after which a link counts as lost.
    pub lease: Duration,
    /// Build of this binary.
    pub build: &'static str,
    /// Digest of the plan that all nodes must have.
    pub digest: [u8; 32],
    /// The plan in lines.
    pub outline: Vec<String>,
    /// Whether every node executes its own line, whose program and number of workers may be other ones.
    pub has_own_lines: bool,
    /// Whether node 0 is on this machine; else it joins as the others do.
    pub has_first: bool,
    /// Names of all nodes, for messages.
    pub hosts: Vec<String>,
}

impl Rules {
    /// Whether a node has to join.
    pub(super) fn expects(&self, node: NodeRank) -> bool {
        let is_first_here = self.has_first && node == NodeRank(0);
        !is_first_here && node.index() < self.hosts.len()
    }

    /// Number and name of a node, for messages.
    pub(super) fn name_of(&self, node: NodeRank) -> String {
        format!("node {node} ({})", self.hosts[node.index()])
    }
}

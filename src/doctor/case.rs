//! What is known of the nodes, and what is wrong with them.

use std::time::Duration;

use crate::base::{HostName, NodeRank, Severity};
use crate::transport::Arrival;
use crate::transport::Fault;
use crate::wire::{Dialed, Examination};

/// All nodes, and what is wanted of them.
#[derive(Clone, Debug)]
pub struct Case {
    /// In the order of their ranks.
    pub nodes: Vec<NodeFacts>,
    /// What their slots stand for.
    pub slots_are: SlotsAre,
    /// Which port rank 0 is to have.
    pub port: MasterPort,
}

/// What slots stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsAre {
    /// GPUs of NVIDIA.
    Gpus,
    /// The same, if any node has one.
    GpusIfAny,
    /// As above, but several workers may have one.
    SharedGpus,
    /// What we know nothing of: processors, devices of others.
    Other,
}

/// Which port rank 0 is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterPort {
    /// This one or none.
    Exactly(u16),
    /// This one, or else any that is free.
    Rather(u16),
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Its name in the hostfile.
    pub host: HostName,
    /// How many workers it would have.
    pub slots: u32,
    /// What was seen.
    pub seen: Seen,
}

/// How far we came.
#[derive(Clone, Debug)]
pub enum Seen {
    /// There was no link.
    Unreachable(Fault),
    /// There was one, and no report came over it.
    Lost(String),
    /// Another remuda answered, which we do not understand.
    OtherVersion {
        /// Build of remuda on the node.
        build: String,
    },
    /// The node sent its report.
    Examined(Box<Patient>),
}

/// A node that was examined.
#[derive(Clone, Debug)]
pub struct Patient {
    /// The way there.
    pub arrival: Arrival,
    /// Time that the way there took, until its agent could speak.
    pub reached: Duration,
    /// Build of its agent.
    pub build: String,
    /// Clock of the node.
    pub clock: Clock,
    /// What it tells.
    pub report: Examination,
    /// What came of its knocks at the doors of others; `None`: it did not say in time.
    pub dialed: Option<Vec<Dialed>>,
}

/// A clock of the day beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Theirs − ours.
    pub ahead_us: i64,
    /// By how much that may be wrong.
    pub error_us: u64,
}

/// One thing that is wrong with one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable code, `D001`.
    pub code: &'static str,
    /// How bad it is. With an error a job cannot run there.
    pub severity: Severity,
    /// Node of the finding.
    pub node: NodeRank,
    /// What: the same for all nodes that have the same trouble.
    pub message: String,
    /// What is different from node to node.
    pub detail: Option<String>,
    /// What to do.
    pub help: Option<String>,
}

impl Finding {
    /// One without help.
    pub(super) fn new(
        code: &'static str,
        severity: Severity,
        node: NodeRank,
        message: impl Into<String>,
    ) -> Self {
        Self { code, severity, node, message: message.into(), detail: None, help: None }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

impl Case {
    /// Those that were examined.
    pub(super) fn patients(&self) -> impl Iterator<Item = (NodeRank, &NodeFacts, &Patient)> {
        (0..).map(NodeRank).zip(&self.nodes).filter_map(|(rank, node)| match &node.seen {
            Seen::Examined(patient) => Some((rank, node, &**patient)),
            Seen::Unreachable(_) | Seen::Lost(_) | Seen::OtherVersion { .. } => None,
        })
    }

    pub(super) fn host(&self, node: NodeRank) -> &HostName {
        &self.nodes[node.index()].host
    }
}

//! Facts about the nodes, and the findings derived from them.

use std::time::Duration;

use crate::base::{HostName, NodeRank, Severity};
use crate::transport::Fault;
use crate::transport::SessionInfo;
use crate::wire::{Examination, ProbeResult};

/// Facts about all nodes, with the requirements of the job.
#[derive(Clone, Debug)]
pub struct ClusterFacts {
    /// Nodes in the order of their ranks.
    pub nodes: Vec<NodeFacts>,
    /// Devices that the slots stand for.
    pub slot_device: SlotDevice,
    /// Requested port for rank 0.
    pub port: MasterPort,
}

/// Devices that slots stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotDevice {
    /// NVIDIA GPUs, one for each worker.
    Gpus,
    /// NVIDIA GPUs, one for each worker, if any node has one.
    GpusIfAny,
    /// NVIDIA GPUs that several workers may share.
    SharedGpus,
    /// Devices that are not examined: processors, accelerators of other vendors.
    Other,
}

/// Requested port for rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterPort {
    /// This port and no other.
    Exact(u16),
    /// This port if it is free, otherwise any free one.
    Preferred(u16),
}

/// Facts about one node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Name of the host in the hostfile.
    pub host: HostName,
    /// Number of workers that it would have.
    pub slots: u32,
    /// Outcome of its examination.
    pub outcome: ExamOutcome,
}

/// Outcome of the examination of a node.
#[derive(Clone, Debug)]
pub enum ExamOutcome {
    /// No link to the node could be established.
    Unreachable(Fault),
    /// The agent sent no report over its link, for this reason.
    NoReport(String),
    /// The agent uses another protocol version.
    OtherVersion {
        /// Build of the agent.
        build: String,
    },
    /// The agent sent its report.
    Examined(Box<ExaminedNode>),
}

/// Facts about a node that was examined.
#[derive(Clone, Debug)]
pub struct ExaminedNode {
    /// How the link was established.
    pub session: SessionInfo,
    /// Time until its agent was connected.
    pub connect_time: Duration,
    /// Build of its agent.
    pub build: String,
    /// Its wall clock.
    pub clock: Clock,
    /// Report of its agent.
    pub report: Examination,
    /// Results of its test connections to other nodes; `None`: it did not report them in time.
    pub probes: Option<Vec<ProbeResult>>,
}

/// Wall clock of a node, compared with the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Clock of the node minus clock of this machine, in microseconds.
    pub ahead_us: i64,
    /// Largest error of that difference, in microseconds.
    pub error_us: u64,
}

/// One problem of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable code, such as `D001`.
    pub code: &'static str,
    /// Severity; with an error, no job can run on the node.
    pub severity: Severity,
    /// Rank of the node.
    pub node: NodeRank,
    /// Description, the same for all nodes that have the same problem.
    pub message: String,
    /// Part of the description that differs from node to node.
    pub detail: Option<String>,
    /// What the user can do.
    pub help: Option<String>,
}

impl Finding {
    /// A finding without detail and help.
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

impl ClusterFacts {
    /// The nodes that were examined.
    pub(super) fn examined_nodes(
        &self,
    ) -> impl Iterator<Item = (NodeRank, &NodeFacts, &ExaminedNode)> {
        (0..).map(NodeRank).zip(&self.nodes).filter_map(|(rank, node)| match &node.outcome {
            ExamOutcome::Examined(examined) => Some((rank, node, &**examined)),
            ExamOutcome::Unreachable(_)
            | ExamOutcome::NoReport(_)
            | ExamOutcome::OtherVersion { .. } => None,
        })
    }

    pub(super) fn host(&self, node: NodeRank) -> &HostName {
        &self.nodes[node.index()].host
    }
}

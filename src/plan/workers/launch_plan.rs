//! The plan of a job: the commands and environments of all nodes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{HostName, JobId, LocalRank, NodeRank, Rank, Slot};
use crate::plan::spec::{MasterAddr, RendezvousPort};
use crate::plan::workers::env_value::EnvValue;
use crate::plan::workers::export::VariableOrigin;
use crate::plan::workers::template::{NodeShare, WorkerPosition};

/// The plan of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// The address on which rank 0 of torch listens.
    pub master_addr: MasterAddr,
    /// Its port.
    pub master_port: RendezvousPort,
    /// Workers of the job.
    pub world_size: u32,
    /// The nodes in rank order: all of the job, or only the one that is started here.
    pub nodes: Vec<NodePlan>,
    /// The origins of the variables that remuda did not create.
    pub origins: BTreeMap<OsString, VariableOrigin>,
}

impl LaunchPlan {
    /// The part of one node: its workers keep their ranks, and the other nodes are left out.
    #[must_use]
    pub fn only_node(mut self, node: NodeRank) -> Self {
        self.nodes.retain(|other| other.node_rank == node);
        self
    }

    /// Number of nodes with workers.
    pub fn node_count(&self) -> usize {
        self.nodes.iter().filter(|node| !node.workers.is_empty()).count()
    }

    /// Number of workers that are started here.
    pub fn local_worker_count(&self) -> usize {
        self.nodes.iter().map(|node| node.workers.len()).sum()
    }
}

/// The plan of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Position in the job.
    pub node_rank: NodeRank,
    /// The node's name in the hostfile.
    pub host: HostName,
    /// The slots that are used.
    pub slots: Vec<Slot>,
    /// One worker for each slot, in slot order.
    pub workers: Vec<WorkerPlan>,
}

/// The plan of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPlan {
    /// Position in the job.
    pub rank: Rank,
    /// Position on the node.
    pub local_rank: LocalRank,
    /// Slot of the worker.
    pub slot: Slot,
    /// Command and environment: stored once for all workers of a node, with blanks.
    pub(crate) share: Arc<NodeShare>,
}

impl WorkerPlan {
    /// Program and arguments.
    pub fn argv(&self) -> impl Iterator<Item = Cow<'_, OsStr>> {
        self.share.template.argv(self.local_rank)
    }

    /// The variables that remuda sets, sorted by name.
    pub fn env(&self) -> impl Iterator<Item = (&OsStr, Cow<'_, EnvValue>)> {
        self.share.env(WorkerPosition { rank: self.rank, local_rank: self.local_rank })
    }
}

/// Values for the symbolic variables, which the agents determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
    /// Address of rank 0.
    pub master_addr: String,
    /// Port of rank 0.
    pub master_port: u16,
    /// Name of the job.
    pub job: JobId,
}

/// The file beside its error file into which a worker's interpreter writes where it is when it is asked to stop.
pub fn stack_file(error_file: &Path) -> PathBuf {
    error_file.with_extension("stack")
}

/// The error file of a worker in the directory of an agent or of a run.
pub fn error_file(directory: &Path, rank: Rank) -> PathBuf {
    directory.join(format!("rank{rank}.error.json"))
}

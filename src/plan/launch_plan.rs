//! What comes out of a plan.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{HostName, JobId, LocalRank, NodeRank, Rank, Slot};

use super::export::VariableOrigin;
use super::spec::MasterAddr;
use super::template::{NodeShare, Place};

/// What every node will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Where rank 0 of torch listens.
    pub master_addr: MasterAddr,
    /// Its port; `None`: to be found on node 0.
    pub master_port: Option<u16>,
    /// Workers of the job.
    pub world_size: u32,
    /// In rank order: all nodes of the job, or the one that is started here.
    pub nodes: Vec<NodePlan>,
    /// Who brought the variables that are not of our making.
    pub origins: BTreeMap<OsString, VariableOrigin>,
}

impl LaunchPlan {
    /// The part of one node: its workers keep their ranks, the others are started elsewhere.
    #[must_use]
    pub fn only(mut self, node: NodeRank) -> Self {
        self.nodes.retain(|other| other.node_rank == node);
        self
    }

    /// Workers that are started here.
    pub fn workers_here(&self) -> usize {
        self.nodes.iter().map(|node| node.workers.len()).sum()
    }
}

/// What one node will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Position in the job.
    pub node_rank: NodeRank,
    /// Its name in the hostfile.
    pub host: HostName,
    /// Slots that are used.
    pub slots: Vec<Slot>,
    /// One worker a slot, in slot order.
    pub workers: Vec<WorkerPlan>,
}

/// What one worker will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPlan {
    /// Position in the job.
    pub rank: Rank,
    /// Position on the node.
    pub local_rank: LocalRank,
    /// Slot of the worker.
    pub slot: Slot,
    /// Command and environment: stored once for all, with blanks.
    pub(super) share: Arc<NodeShare>,
}

impl WorkerPlan {
    /// Program and arguments.
    pub fn argv(&self) -> impl Iterator<Item = Cow<'_, OsStr>> {
        self.share.template.argv(self.local_rank)
    }

    /// The variables that remuda sets, sorted by name.
    pub fn env(&self) -> impl Iterator<Item = (&OsStr, Cow<'_, EnvValue>)> {
        self.share.env(Place { rank: self.rank, local_rank: self.local_rank })
    }
}

/// A value that may have to wait for the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// Known.
    Known(OsString),
    /// The address of rank 0.
    MasterAddr,
    /// The port of rank 0.
    MasterPort,
    /// The name of the job: random, hence no part of the plan.
    JobId,
    /// Where torch's `@record` writes the exception of this worker: a file that the agent of the node
    /// chooses.
    ErrorFile,
    /// CPUs of the node we may use / workers of the node, unless the environment already says.
    ThreadShare,
    /// Known, and set only where the environment of the node does not have it.
    Unless(OsString),
}

/// What the agents found: the values of everything symbolic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
    /// Address of rank 0.
    pub master_addr: String,
    /// Port of rank 0.
    pub master_port: u16,
    /// Name of the job.
    pub job: JobId,
}

/// The error file of a worker in the directory of an agent or of a run.
pub fn error_file(directory: &Path, rank: Rank) -> PathBuf {
    directory.join(format!("rank{rank}.error.json"))
}

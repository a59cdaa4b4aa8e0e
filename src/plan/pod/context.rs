//! What the platform sets for a pod: its context, its place among the pods of a job, and the convention that says so.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::env_vars;
use crate::plan::pod::mpi_job::MpiHostfile;

/// Facts about a process and its machine that are available without network access.
#[derive(Clone, Debug, Default)]
pub struct PodContext {
    /// The environment variables whose names and values are text.
    pub env: BTreeMap<String, String>,
    /// The host name of the machine.
    pub hostname: String,
    /// Its full name, if `/etc/hosts` has one.
    pub full_name: Option<String>,
    /// The hostfile of MPI, if [`mpi_hostfile_path`](crate::plan::mpi_hostfile_path) has found its path.
    pub mpi_hostfile: Option<MpiHostfile>,
}

/// A platform's convention for a pod's place in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// `LWS_…`, which the controller of `LeaderWorkerSet`s sets.
    LeaderWorkerSet,
    /// `PET_…`: Kubeflow's Trainer, and newer `PyTorchJob`s.
    Kubeflow,
    /// `RANK` and `WORLD_SIZE` of pods.
    PyTorchJob,
    /// `VC_…`, which Volcano sets.
    Volcano,
    /// A hostfile of MPI.
    MpiJob,
    /// `JOBSET_NAME` and the index of a Job.
    JobSet,
    /// `JOB_COMPLETION_INDEX`, which Kubernetes sets in the pods of an Indexed Job.
    IndexedJob,
    /// `SKYPILOT_…`, which SkyPilot sets.
    SkyPilot,
    /// `DSTACK_…`, which dstack sets.
    Dstack,
    /// `NOMAD_ALLOC_INDEX`, which Nomad sets.
    Nomad,
    /// `SLURM_NODEID`, which Slurm sets in every task.
    Slurm,
    /// `NODE_RANK` and the number of nodes.
    Plain,
    /// A number at the end of the pod's name.
    StatefulSet,
}

/// A pod's place in its job, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// The convention that was used.
    pub convention: Convention,
    /// The number of this node.
    pub rank: u32,
    /// The number of nodes.
    pub nodes: Option<u32>,
    /// The address of node 0.
    pub master_addr: Option<String>,
    /// The port of rank 0.
    pub master_port: Option<u16>,
    /// Workers of each node.
    pub slots: Option<u32>,
    /// The common name of the pods, without their number.
    pub base: Option<String>,
    /// The variables that were read, each with its value.
    pub variables: Vec<(String, String)>,
}

/// The role of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodRole {
    /// A node of the job.
    Node(PodIdentity),
    /// The launcher of an `MPIJob`: it has no workers, and reaches its hosts over ssh.
    Launcher(MpiLauncher),
}

/// A pod that starts the job on others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiLauncher {
    /// The path of its hostfile.
    pub hostfile: String,
    /// The number of hosts in it.
    pub hosts: usize,
    /// The variable that named the hostfile, and its value.
    pub source: (String, String),
}

/// Why the role of a pod is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No convention matches.
    #[error("the number of this pod is not set (--node_rank)")]
    Unknown,
    /// The hostfile of an `MPIJob` cannot be read.
    #[error("the hostfile of an MPIJob, `{0}`, cannot be read: {1}")]
    MpiHostfile(String, String),
    /// A value that is invalid.
    #[error("`{name}={value}` is not {expected}")]
    Malformed {
        /// Name of the variable.
        name: String,
        /// The invalid value.
        value: String,
        /// The expected kind of value.
        expected: &'static str,
    },
    /// Two conventions contradict each other.
    #[error("{what}: {one}, but {other}")]
    Conflict {
        /// Description of the conflict.
        what: &'static str,
        /// The statement of the first convention, with its name and the variables it was read from.
        one: String,
        /// The statement of the other one.
        other: String,
    },
}

impl fmt::Display for Convention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaderWorkerSet => "LeaderWorkerSet",
            Self::Kubeflow => "Kubeflow",
            Self::PyTorchJob => "PyTorchJob",
            Self::Volcano => "Volcano",
            Self::MpiJob => "MPIJob",
            Self::JobSet => "JobSet",
            Self::IndexedJob => "Indexed Job",
            Self::SkyPilot => "SkyPilot",
            Self::Dstack => "dstack",
            Self::Nomad => "Nomad",
            Self::Slurm => "Slurm",
            Self::Plain => env_vars::NODE_RANK,
            Self::StatefulSet => "StatefulSet",
        })
    }
}

impl PodIdentity {
    /// A statement with the convention and the variables it was read from.
    pub(crate) fn with_source(&self, what: &str) -> String {
        let read: Vec<_> =
            self.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{what} ({}: {})", self.convention, read.join(" "))
    }
}

impl fmt::Display for PodIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_source(&format!("node {}", self.rank)))
    }
}

impl fmt::Display for MpiLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value) = &self.source;
        write!(f, "launcher (MPIJob: {name}={value})")
    }
}

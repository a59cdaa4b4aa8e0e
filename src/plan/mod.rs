//! Plan of a job: ranks, environment and arguments of every worker, as pure data (layer L2).
//!
//! A `JobSpec` becomes a `LaunchPlan`; equal inputs give equal bytes. This layer reads no clock, no
//! environment and no network. Values that only the nodes can determine stay symbolic
//! ([`EnvValue`], [`MasterAddr`]) until the agents have answered.

mod bind;
mod build;
mod check;
mod conventions;
mod cores;
mod digest;
mod env;
mod export;
mod identity;
mod launch_plan;
mod manifest;
mod mpi_job;
mod outline;
mod spec;
mod template;

pub use bind::ThreadShare;
pub use build::{PlanError, WORKERS_MAX, plan};
pub use cores::{CoreShare, CoresError, NumaMemory, Topology, share_cores};
pub use digest::digest;
pub use export::{Export, VariableOrigin, propagated_exports};
pub use identity::{
    Convention, IdentityError, MpiLauncher, PodContext, PodIdentity, PodRole, identify,
};
pub use launch_plan::{Bindings, EnvValue, LaunchPlan, NodePlan, WorkerPlan, error_file};
pub use manifest::{
    Controller, ManifestError, ManifestSpec, PairError, PodAccess, Quantity, QuantityError,
    ResourceError, Resources, Scheduling, Support, Toleration, TolerationError, is_label_value,
    is_qualified_name, is_subdomain, manifest, parse_annotation, parse_label, show_yaml,
};
pub use mpi_job::{MpiHostfile, mpi_hostfile_path};
pub use outline::{OUTLINE_BYTES_MAX, outline, show_difference};
pub use spec::{Accelerator, JobSpec, MASTER_PORT, MasterAddr, Program};

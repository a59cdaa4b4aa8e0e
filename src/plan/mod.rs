//! Plan of a job: ranks, environment and arguments of every worker, as pure data (layer L2).
//!
//! A `JobSpec` becomes a `LaunchPlan`; equal inputs give equal bytes. This layer reads no clock, no
//! environment and no network. Values that only the nodes can determine stay symbolic
//! ([`EnvValue`], [`MasterAddr`]) until the agents have answered.

mod accelerator;
mod bind;
mod build;
mod check;
mod conventions;
mod cores;
mod digest;
mod env;
mod env_value;
mod error;
mod export;
mod identity;
mod launch_plan;
mod manifest;
mod mpi_job;
mod outline;
mod pod;
mod spec;
mod template;

pub use accelerator::Accelerator;
pub use bind::ThreadShare;
pub use build::plan;
pub use cores::{CoreShare, CoresError, NumaMemory, Topology, share_cores};
pub use digest::digest;
pub use env_value::EnvValue;
pub use error::PlanError;
pub use error::WORKERS_MAX;
pub use export::{Export, VariableOrigin, propagated_exports};
pub use identity::identify;
pub use launch_plan::Bindings;
pub use launch_plan::LaunchPlan;
pub use launch_plan::NodePlan;
pub use launch_plan::WorkerPlan;
pub use launch_plan::error_file;
pub use manifest::{
    Controller, ManifestError, ManifestSpec, PairError, PodAccess, Quantity, QuantityError,
    ResourceError, Resources, Scheduling, Support, Toleration, TolerationError, is_label_value,
    is_qualified_name, is_subdomain, manifest, parse_annotation, parse_label, show_yaml,
};
pub use mpi_job::{MpiHostfile, mpi_hostfile_path};
pub use outline::{OUTLINE_BYTES_MAX, outline, show_difference};
pub use pod::Convention;
pub use pod::IdentityError;
pub use pod::MpiLauncher;
pub use pod::PodContext;
pub use pod::PodIdentity;
pub use pod::PodRole;
pub use spec::JobSpec;
pub use spec::MASTER_PORT;
pub use spec::MasterAddr;
pub use spec::Program;

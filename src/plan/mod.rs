//! Plan of a job: ranks, environment and arguments of every worker, as pure data (layer L2).
//!
//! A `JobSpec` becomes a `LaunchPlan`; equal inputs give equal bytes. This layer reads no clock, no
//! environment and no network. Values that only the nodes can determine stay symbolic
//! ([`EnvValue`], [`MasterAddr`]) until the agents have answered.

mod accelerator;
mod batch_script;
mod digest;
mod error;
mod manifest;
mod outline;
pub(crate) mod pod;
mod spec;
pub(crate) mod workers;

pub use accelerator::Accelerator;
pub use batch_script::{BatchScript, UnprintableWord};
pub use digest::{digest, line_digest};
pub use error::{PlanError, WORKERS_MAX};
pub use manifest::{
    Controller, ManifestError, ManifestSpec, PairError, PodAccess, Quantity, QuantityError,
    ResourceError, Resources, Scheduling, Support, Toleration, TolerationError, is_label_value,
    is_qualified_name, is_subdomain, manifest, parse_annotation, parse_label, show_yaml,
};
pub use outline::{
    NamedOutline, OUTLINE_BYTES_MAX, has_same_nodes, help_for_sizes, line_outline, outline,
    show_difference,
};
pub use pod::context::{Convention, IdentityError, MpiLauncher, PodContext, PodIdentity, PodRole};
pub use pod::identity::identify;
pub use pod::mpi_job::{MpiHostfile, mpi_hostfile_path};
pub use spec::{
    Conventions, JobSpec, MASTER_PORT, MasterAddr, Program, RendezvousPort, TorchrunConventions,
};
pub use workers::bind::ThreadShare;
pub use workers::build::plan;
pub use workers::cores::{CoreShare, CoresError, NumaMemory, Topology, share_cores};
pub use workers::env_value::EnvValue;
pub use workers::export::{Export, VariableOrigin, propagated_exports};
pub use workers::launch_plan::{
    Bindings, LaunchPlan, NodePlan, WorkerPlan, error_file, stack_file,
};
pub use workers::numa::{NumaBinding, NumaError, NumaTopology, share_near_gpus};

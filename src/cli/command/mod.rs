//! Commands: one file or folder for each.

pub(super) mod accelerate;
pub(super) mod agent;
pub(super) mod bench;
pub(super) mod completion;
pub(super) mod doctor;
pub(super) mod entry;
pub mod explain;
pub mod hostfile;
pub(super) mod k8s;
pub mod launch;
pub(super) mod man;
pub(super) mod node;
pub(super) mod parse;
pub mod pod;
pub mod run;
pub(super) mod sbatch;
pub(super) mod ssh;
pub mod torchrun;
#[cfg(feature = "train")]
pub(super) mod train;

//! Commands: one file or folder for each.

pub(super) mod accelerate;
pub(super) mod agent;
pub(super) mod bench;
#[cfg(feature = "train")]
pub(super) mod checkpoint;
pub(super) mod completion;
pub mod config;
pub(super) mod doctor;
pub(super) mod entry;
pub mod explain;
pub(super) mod gpu_check;
pub mod hostfile;
pub(super) mod k8s;
pub mod launch;
pub(super) mod links;
pub(super) mod man;
pub(super) mod node;
#[cfg(feature = "train")]
mod optimizer_text;
pub(super) mod output;
pub(super) mod parse;
pub mod pod;
pub mod run;
#[cfg(feature = "train")]
pub(super) mod sample;
pub(super) mod sbatch;
pub(super) mod ssh;
#[cfg(feature = "train")]
pub(super) mod tokenize;
pub mod torchrun;
#[cfg(feature = "train")]
pub(super) mod train;

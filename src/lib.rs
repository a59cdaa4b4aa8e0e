//! `remuda`: from a hostfile to a running, supervised distributed training job.
//!
//! The crate is built in layers; a module imports only modules of a lower layer, and
//! `tests/architecture.rs` enforces it.
//!
//! | layer | modules | what for |
//! |---|---|---|
//! | L6 | [`cli`] | the only module that knows clap; one file per command |
//! | L5 | [`launch`] [`agent`] [`doctor`] [`train`] [`bench`] | launcher side · node side · hosts as they are · the bundled worker programs |
//! | L4 | [`transport`] [`report`] [`runtime`] | streams to nodes · what people and machines see · the data plane |
//! | L3 | [`job`] [`wire`] [`inventory`] | what happens next · what is said · what a node has |
//! | L2 | [`plan`] | every worker's rank, environment and argv, as pure data |
//! | L1 | [`pool`] [`os`] [`secure`] | texts · the kernel · Noise and keys as byte machines |
//! | L0 | [`base`] | ids, clock, exit statuses, diagnostics, environment variables |
//!
//! A Rust worker needs [`runtime`] alone: `default-features = false` builds it with a handful of
//! crates and none of the launcher. The feature `nccl` adds numbers on GPUs, `train` the bundled models
//! and trainer, `cli` the launcher.
//!
//! [`bench`]: mod@bench

// Proofs share their random numbers with the tests of the whole program.
#[cfg(test)]
extern crate self as remuda;

pub mod base;
pub mod os;
pub mod runtime;
pub mod secure;

#[cfg(feature = "cli")]
pub mod agent;
#[cfg(feature = "cli")]
pub mod bench;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod doctor;
#[cfg(feature = "cli")]
pub mod inventory;
#[cfg(feature = "cli")]
pub mod job;
#[cfg(feature = "cli")]
pub mod launch;
#[cfg(feature = "cli")]
pub mod plan;
#[cfg(feature = "cli")]
pub mod pool;
#[cfg(feature = "cli")]
pub mod report;
#[cfg(feature = "train")]
pub mod train;
#[cfg(feature = "cli")]
pub mod transport;
#[cfg(feature = "cli")]
pub mod wire;

//! A cluster job runner and the library for its workers.
//!
//! The program `remuda` starts and supervises distributed jobs (its options are in `remuda run --help`).
//! This crate is also the library with which you write the workers of such a job in Rust.
//!
//! # Write a worker
//!
//! A worker is an ordinary program. It joins the group of all workers with
//! [`Group::from_env`](runtime::Group::from_env) and then calls collectives on that group. Without the
//! default features the library has few dependencies and none of the launcher:
//!
//! ```toml
//! [dependencies]
//! remuda = { path = "../remuda", default-features = false }
//! ```
//!
//! This worker fits a line to 1,000 points. Every worker computes the gradient of its part of the points;
//! [`DistributedDataParallel`](runtime::DistributedDataParallel) averages the gradients of all workers.
//! In one step a worker can process several micro-batches, one after the other. A *lane* is the sequence
//! of samples that one of these micro-batches receives, step after step: a worker with two micro-batches
//! per step reads two lanes. Here every worker has one micro-batch per step, so
//! [`DistributedSampler::lanes`](runtime::DistributedSampler::lanes) returns one lane:
//!
//! ```no_run
//! use remuda::runtime::{
//!     DdpOptions, DistributedDataParallel, DistributedSampler, Error, Group, Layout,
//! };
//!
//! fn main() -> Result<(), Error> {
//!     let group = Group::from_env()?;
//!     println!("rank {} of {}", group.rank(), group.world_size());
//!     let layout = Layout::new([("slope", 1), ("offset", 1)]);
//!     let mut params = vec![0.0f32; layout.len()];
//!     let mut ddp = DistributedDataParallel::new(&group, &layout, DdpOptions::default())?;
//!     ddp.broadcast_params(&mut params)?;
//!     let mut sampler = DistributedSampler::lanes(1000, &group, 1).remove(0);
//!     for epoch in 0..10 {
//!         sampler.set_epoch(epoch);
//!         for row in sampler.indices() {
//!             let x = row as f32 / 1000.0;
//!             let y = 3.0 * x + 1.0;
//!             ddp.micro_batch(|grads| {
//!                 let error = params[0] * x + params[1] - y;
//!                 grads.flat().copy_from_slice(&[2.0 * error * x, 2.0 * error]);
//!             })?;
//!             let mean = ddp.reduce()?;
//!             params.iter_mut().zip(mean).for_each(|(param, grad)| *param -= 0.1 * *grad);
//!         }
//!         if group.rank() == 0 {
//!             println!("epoch {epoch}: slope {:.3}, offset {:.3}", params[0], params[1]);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Start it with four workers on this machine, or on the hosts of a hostfile:
//!
//! ```console
//! $ cargo build --release
//! $ remuda run -n 4 target/release/worker
//! $ remuda run -H hosts target/release/worker
//! ```
//!
//! A test needs no launcher: [`Group::on_threads`](runtime::Group::on_threads) runs the same code on
//! threads of one process.
//!
//! ```
//! use remuda::runtime::{Error, Group, ReduceOp};
//!
//! let sums = Group::on_threads(4, |group| {
//!     let mut value = [group.rank() as f32];
//!     group.all_reduce(&mut value, ReduceOp::Sum)?;
//!     Ok(value[0])
//! })?;
//! assert_eq!(sums, [6.0; 4]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Stable API
//!
//! [`runtime`], [`base::env_vars`] and `train` are the API for workers, `launch::Job` and
//! `agent::serve_if_agent` that for programs which start jobs. The other modules serve the program `remuda`
//! and may change in any release.
//!
//! # Modules by task
//!
//! | task | start at |
//! |---|---|
//! | join a job; call collectives | [`runtime::Group`] |
//! | overlap communication with computation | [`runtime::Work`] |
//! | train data-parallel over flat buffers | [`runtime::DistributedDataParallel`], [`runtime::Layout`] |
//! | update parameters | [`runtime::optim::Optimizer`], [`runtime::optim::LrSchedule`], [`runtime::optim::LossScaler`] |
//! | shard the state of a training (ZeRO, FSDP); mixed precision; offload | [`runtime::engine::Engine`], `docs/own_model.md`, `examples/own_model.rs` |
//! | save and load checkpoints (feature `train`) | `runtime::checkpoint` |
//! | divide a data set among workers | [`runtime::DistributedSampler`] |
//! | report steps to the launcher's status line and metrics | [`runtime::Group::note`], [`runtime::Note`] |
//! | handle a failed collective | [`runtime::CollectiveError`], [`runtime::Cause`] |
//! | start a job from a program (feature `cli`) | `launch::Job` |
//! | start workers with a launcher of your own | [`runtime::contract`], [`base::env_vars`] |
//! | use collectives on GPUs (feature `nccl`; not yet run on several) | `runtime::device` |
//! | call collectives from C, C++, Julia or Python (feature `capi`) | `capi`, `docs/c_interface.md`, `docs/python.md` |
//! | reuse the bundled models and trainer (feature `train`) | `train` |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `cli` | the launcher: all modules except `base`, `os`, `secure`, `cuda`, `runtime`, `capi` and `train` |
//! | `train` | the bundled models and trainer |
//! | `capi` | the C interface, for a library of its own; not a default feature |
//! | `nccl` | collectives on GPUs; NVIDIA's libraries are opened at run time |
//!
//! All but `capi` are default features.
//!
//! The modules form layers: a module imports only modules of a lower layer. ARCHITECTURE.md contains the
//! table of layers, and `tests/architecture.rs` enforces it.

/// The program of `docs/own_model.md`, which must compile and run.
#[cfg(all(doctest, feature = "cli", feature = "train"))]
#[doc = include_str!("../docs/own_model.md")]
pub struct OwnModelPage;

// Proofs share their random numbers with the tests of the whole program.
#[cfg(test)]
extern crate self as remuda;

pub mod base;
#[cfg(feature = "nccl")]
pub mod cuda;
pub mod os;
pub mod runtime;
pub mod secure;

#[cfg(feature = "cli")]
pub mod agent;
#[cfg(feature = "cli")]
pub mod bench;
// Its tests run with those of the crate.
#[cfg(any(test, feature = "capi"))]
pub mod capi;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod config;
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
#[cfg(all(test, feature = "cli"))]
mod simulation;
#[cfg(feature = "train")]
pub mod train;
#[cfg(feature = "cli")]
pub mod transport;
#[cfg(feature = "cli")]
pub mod wire;

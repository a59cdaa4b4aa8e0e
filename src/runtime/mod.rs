//! Process groups, collectives, data-parallel training and samplers for workers (layer L4).
//!
//! This module does not depend on the launcher: a worker receives two file descriptors and environment
//! variables (see [`contract`]). Ranks of one node communicate through shared memory, ranks of different
//! nodes over TCP. Sums are computed in one fixed order, the canonical [`tree`], so results have the same
//! bits for every placement of the ranks.
//!
//! A worker joins its [`Group`] and calls collectives on it:
//!
//! ```no_run
//! use remuda::runtime::{
//!     DdpOptions, DistributedDataParallel, DistributedSampler, Error, Group, Layout, ReduceOp,
//! };
//!
//! fn main() -> Result<(), Error> {
//!     let group = Group::from_env()?;
//!     let layout = Layout::new([("weight", 100), ("bias", 1)]);
//!     let mut params = vec![0.0f32; layout.len()];
//!     let mut ddp = DistributedDataParallel::new(&group, &layout, DdpOptions::default())?;
//!     ddp.broadcast_params(&mut params)?;
//!     let mut sampler = DistributedSampler::lanes(10_000, &group, 1).remove(0);
//!     for epoch in 0..3 {
//!         sampler.set_epoch(epoch);
//!         for row in sampler.indices() {
//!             ddp.micro_batch(|grads| {
//!                 // Last layer first: its bucket is reduced while the next one is computed.
//!                 backward_of_bias(&params, row, grads.range(layout.range("bias")));
//!                 grads.ready(layout.range("bias"));
//!                 backward_of_weight(&params, row, grads.range(layout.range("weight")));
//!             })?;
//!             let mean = ddp.reduce()?;
//!             params.iter_mut().zip(mean).for_each(|(param, grad)| *param -= 0.1 * *grad);
//!         }
//!         let mut done = [1.0f32];
//!         group.all_reduce(&mut done, ReduceOp::Avg)?;
//!     }
//!     Ok(())
//! }
//! # fn backward_of_bias(_: &[f32], _: usize, _: &mut [f32]) {}
//! # fn backward_of_weight(_: &[f32], _: usize, _: &mut [f32]) {}
//! ```
//!
//! `examples/linear.rs` is a complete worker. Without a launcher, [`Group::single`] is a group of one
//! rank and [`Group::threads`] a group of threads.
//!
//! | file | contents |
//! |---|---|
//! | `group`, `operations`, `started`, `work` | the public API: groups, blocking and nonblocking operations, handles |
//! | `ddp`, `sampler` | data-parallel training |
//! | `runner`, `engine`, `collective`, `parts`, `message` | execution of operations; `parts`: gather, scatter and all-to-all; `message`: send and receive |
//! | `tree`, `schedule` | summation order and placement of ranks, as data |
//! | `shm`, `shm_window`, `flag`, `node` | shared memory of a node and barriers in it |
//! | `across`, `overlap`, `ring`, `net`, `traffic`, `room` | communication between nodes; `net`: TCP mesh; `traffic`: streams; `room`: buffer pool |
//! | `device`, `nccl`, `nvrtc`, `library` | collectives on GPUs (feature `nccl`) |
//! | `membership`, `split`, `contract`, `store` | rendezvous and subgroups |
//! | `watch`, `waits` | detection of lost and of late ranks |

mod across;
mod cells;
mod collective;
pub mod contract;
mod ddp;
#[cfg(feature = "nccl")]
pub mod device;
mod element;
mod engine;
mod error;
mod flag;
mod group;
mod half;
#[cfg(feature = "nccl")]
pub mod library;
mod membership;
mod memory;
mod message;
#[cfg(feature = "nccl")]
pub mod nccl;
mod net;
mod node;
#[cfg(feature = "nccl")]
pub mod nvrtc;
mod operations;
mod overlap;
mod parts;
mod ring;
mod room;
mod runner;
pub mod sampler;
pub mod schedule;
mod shm;
mod shm_window;
mod split;
mod started;
pub mod store;
mod traffic;
pub mod tree;
mod waits;
mod watch;
mod work;

pub use contract::Note;
pub use ddp::{
    Bucket, DdpEvent, DdpOptions, DistributedDataParallel, Gradients, Layout, clip_grad_norm,
    global_norm, sum_of_squares,
};
pub use element::{Dtype, Element, GradientElement, ReduceOp, ReduceOrder};
pub use error::{Cause, CollectiveError, Departure, Error, Fingerprint, Operation, Result};
pub use group::{BetweenNodes, Group, InitOptions, TIMEOUT_DEFAULT, Thresholds};
pub use half::{Bf16, F16};
pub use memory::Region;
pub use sampler::DistributedSampler;
pub use shm::SegmentError;
pub use shm_window::Buffer;
pub use work::Work;

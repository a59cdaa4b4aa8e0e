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
//! Modules, from the lowest layer to the highest; a module imports only lower ones:
//!
//! | module | contents |
//! |---|---|
//! | `dtype`, [`schedule`] | element types and their reductions; order of sums, placement of ranks, as data |
//! | `flat`, `comm/core` | layout, buckets, accumulation, norms; errors, operations, options, deadlines |
//! | `comm/store`, `comm/shm` | rendezvous at a server; shared memory of a node and barriers in it |
//! | [`optim`] | optimizers, learning rates, loss scale: the arithmetic of an update; same layer |
//! | `comm/tcp`, [`contract`] | connections between nodes; frames between agent and worker |
//! | `comm/host`, `error` | collectives in host memory |
//! | `comm/bootstrap` | joining a job, subgroups, the watch over lost ranks |
//! | `comm` | the public API: groups, blocking and nonblocking operations, handles |
//! | `comm/device`, `checkpoint` | collectives on GPUs (feature `nccl`); checkpoints (feature `train`) |
//! | `data`, `parallel` | samplers, random numbers; data-parallel training, plans of sharding |
//! | `kernel_checks`, `gpu_checks` | each CUDA kernel against a reference; what `doctor --gpu` checks (feature `nccl`) |
//! | [`engine`] | training steps over a model of units, with any stage of sharding |

#[cfg(feature = "train")]
pub mod checkpoint;
pub(crate) mod comm;
pub mod contract;
pub(crate) mod data;
pub(crate) mod dtype;
pub mod engine;
mod error;
pub(crate) mod flat;
#[cfg(feature = "nccl")]
pub mod gpu_checks;
#[cfg(feature = "nccl")]
pub mod kernel_checks;
pub mod optim;
pub(crate) mod parallel;
pub mod schedule;

#[cfg(feature = "nccl")]
pub use crate::cuda::{library, nvrtc};
pub use comm::bootstrap::meet::KeyValue;
pub use comm::collectives::{
    Collectives, GradientCollectives, HostMemory, Lend, Plan, PlanDigest, StepCheck,
};
pub use comm::core::error::{Cause, CollectiveError, Departure};
pub use comm::core::ffi_memory::RawSlice;
pub use comm::core::fingerprint::{CallCounts, Fingerprint};
pub use comm::core::operation::{DividedReduction, Operation};
pub use comm::core::options::{BetweenNodes, InitOptions, TIMEOUT_DEFAULT, Thresholds};
pub use comm::core::traffic::{OperationTraffic, Traffic};
pub use comm::executor::OperationEvent;
pub use comm::group::{Group, PeakMemory};
pub use comm::host::region::Region;
pub use comm::shm::buffer::{Buffer, Lent, SharedBuffer};
pub use comm::shm::error::SegmentError;
pub use comm::store;
pub use comm::work::Work;
pub use contract::Note;
pub use data::even_batches::EvenBatches;
pub use data::random::RandomStream;
pub use data::sampler::{self, DistributedSampler};
pub use dtype::element::{Dtype, Element, GradientElement, ReduceOp, ReduceOrder};
pub use dtype::half::{Bf16, F16, HalfFloat};
pub use dtype::rounding::{round_in_place, round_slice, widen_slice};
pub use error::{Error, Result};
pub use flat::norm::{
    NORM_BLOCK, block_sums, clip_factor, clip_grad_norm, fold_block_sums, fold_subtree_sums,
    global_norm, subtree_sums, subtrees, sum_of_squares,
};
pub use flat::tasks::{Parallel, Serial};
pub use parallel::ddp::{
    Bucket, DdpEvent, DdpOptions, DistributedDataParallel, GradientMemory, Gradients, Layout,
};
pub use schedule::tree;

#[cfg(feature = "nccl")]
pub use comm::device;

/// NCCL: the identifier of a communicator, and the state of its ranks.
#[cfg(feature = "nccl")]
pub mod nccl {
    pub use super::comm::device::share_id;
    pub use crate::cuda::nccl::*;
}

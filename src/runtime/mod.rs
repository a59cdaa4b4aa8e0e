//! L4: the data plane: process groups, data-parallel training, samplers.
//!
//! Does not know how it was launched: what a worker is given is two descriptors and the environment
//! (see [`contract`]). Ranks of one node share memory, ranks of different nodes talk over TCP; sums
//! are folded in one order, the canonical [`tree`], whatever lies where, so results are the same to
//! the bit.
//!
//! A worker is a program that asks for its [`Group`]:
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
//!                 // Last layer first: its bucket is reduced while the other is computed.
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
//! `examples/linear.rs` is a whole one. Without a launcher, [`Group::single`] is a group of one and
//! [`Group::threads`] a group of threads.
//!
//! | file | what for |
//! |---|---|
//! | `group`, `operations`, `started`, `work` | what users hold and call |
//! | `ddp`, `sampler` | training |
//! | `runner`, `engine`, `collective`, `parts`, `message` | operations: who runs them, what they share, what they do |
//! | `tree`, `schedule` | orders and placements as data |
//! | `shm`, `shm_window`, `flag`, `node` | the memory of a node, and meetings in it |
//! | `across`, `overlap`, `ring`, `net`, `traffic`, `room` | other nodes |
//! | `device`, `nccl`, `nvrtc`, `library` | numbers on GPUs (feature `nccl`) |
//! | `membership`, `split`, `contract`, `watch`, `waits`, `store` | becoming a rank, and learning that others are gone, or late |

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
pub use element::{Dtype, Element, Float, ReduceOp, ReduceOrder};
pub use error::{Cause, CollectiveError, Departure, Error, Fingerprint, Operation, Result};
pub use group::{BetweenNodes, Group, InitOptions, TIMEOUT_DEFAULT, Thresholds};
pub use half::{Bf16, F16};
pub use memory::Region;
pub use sampler::DistributedSampler;
pub use shm::SegmentError;
pub use shm_window::Buffer;
pub use work::Work;

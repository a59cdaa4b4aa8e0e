//! L4: the data plane: process groups, data-parallel training, samplers.
//!
//! Does not know how it was launched: what a worker is given is two descriptors and the environment.
//! Ranks of one node share memory, ranks of different nodes talk over TCP; sums are folded in one
//! order whatever lies where, so results are the same to the bit.

mod across;
mod collective;
pub mod contract;
mod ddp;
mod element;
mod engine;
mod error;
mod flag;
mod group;
mod membership;
mod memory;
mod message;
mod net;
mod node;
mod runner;
pub mod sampler;
pub mod schedule;
mod shm;
mod shm_window;
pub mod store;
pub mod tree;
mod watch;
mod work;

pub use contract::Note;
pub use ddp::{
    Bucket, DdpEvent, DdpOptions, DistributedDataParallel, Gradients, Layout, clip_grad_norm,
    global_norm, sum_of_squares,
};
pub use element::{Dtype, Element, Float, ReduceOp};
pub use error::{Cause, CollectiveError, Error, Fingerprint, Operation, Result};
pub use group::{Group, InitOptions, Region, TIMEOUT_DEFAULT};
pub use sampler::DistributedSampler;
pub use shm::SegmentError;
pub use shm_window::Buffer;
pub use work::Work;

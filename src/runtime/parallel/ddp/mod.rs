//! Data-parallel training over flat buffers.
//!
//! A job of `W` workers that accumulate `A` micro-batches has `L = W · A` lanes; lane `m = r · A + a` is
//! micro-batch `a` of rank `r`. Gradients are summed over lanes in the order of the canonical tree and
//! multiplied once by `1/L`. If `A` is a power of two, `W` workers that accumulate `A` micro-batches and
//! one worker that accumulates `W · A` therefore get the same bits.

mod data_parallel;
mod gradients;
#[cfg(test)]
mod late;
pub(crate) mod reducer;

pub use data_parallel::{DdpOptions, DistributedDataParallel};
pub use gradients::{GradientMemory, Gradients};
pub use reducer::DdpEvent;

pub use crate::runtime::flat::buckets::Bucket;
pub use crate::runtime::flat::layout::Layout;

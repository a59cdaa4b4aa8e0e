//! Flat buffers of parameters and gradients: layout, buckets, accumulation, norms, tasks over blocks.

pub(crate) mod accumulate;
pub(crate) mod buckets;
pub(crate) mod layout;
pub(crate) mod norm;
pub(crate) mod tasks;

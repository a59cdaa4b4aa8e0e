//! Division of a data set among workers in training and in evaluation, and random numbers.

pub(crate) mod even_batches;
pub(crate) mod random;
pub mod sampler;

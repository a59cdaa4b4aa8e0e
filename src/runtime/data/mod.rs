//! Division of a data set among workers, and random numbers.

pub(crate) mod random;
pub mod sampler;

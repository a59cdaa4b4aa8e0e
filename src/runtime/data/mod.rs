//! Division of a data set among workers.

pub mod sampler;

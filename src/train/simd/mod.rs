//! The two places of the trainer that need `unsafe`: code compiled for several instruction sets, and
//! matrix products.

pub(in crate::train) mod matmul;
mod versions;

pub(in crate::train) use versions::{Level, level, versions};

#[cfg(test)]
pub(in crate::train) use versions::tests::at_every_level;

//! Parts of the trainer that need `unsafe`: code compiled for several instruction sets, and matrix
//! products.

pub(in crate::train) mod matmul;
mod versions;

pub(in crate::train) use versions::versions;

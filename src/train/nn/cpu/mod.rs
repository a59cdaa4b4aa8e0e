//! Operations of the models on the CPU.
//!
//! Code compiled for several instruction sets and matrix products need `unsafe`: they are in the files
//! `simd_…`.

pub(crate) mod attention;
pub(crate) mod kernels;
pub(crate) mod linear;
pub(crate) mod math;
pub(crate) mod rounding;
pub(crate) mod simd_matmul;
pub(crate) mod threads;

//! NVIDIA's libraries, opened at run time (layer L1): a program built with feature `nccl` also starts on a
//! machine without them.
//!
//! | module | contents |
//! |---|---|
//! | [`cublaslt`] | products of matrices |
//! | [`device`] | a GPU as the runtime sees it |
//! | [`driver`] | a GPU by NVIDIA's driver |
//! | [`kernels`] | source and launches of the kernels of training |
//! | [`library`] | search and opening of a library |
//! | [`nccl`] | communicators of NCCL and the state of its ranks |
//! | [`nvrtc`] | compilation of CUDA C |

pub mod cublaslt;
pub mod device;
pub mod driver;
pub mod kernels;
pub mod library;
pub mod nccl;
pub mod nvrtc;

//! NVIDIA's libraries, opened at run time (layer L1): a program built with feature `nccl` also starts on a
//! machine without them.
//!
//! | module | contents |
//! |---|---|
//! | [`device`] | a GPU as the runtime sees it |
//! | [`kernels`] | source and launches of the kernels of training |
//! | [`library`] | search and opening of a library |
//! | [`nccl`] | communicators of NCCL and the state of its ranks |
//! | [`nvrtc`] | compilation of CUDA C |

pub mod device;
pub mod kernels;
pub mod library;
pub mod nccl;
pub mod nvrtc;

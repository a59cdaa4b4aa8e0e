//! Tests with NVIDIA's libraries, on machines with and without a GPU.

#![cfg(all(feature = "cli", feature = "nccl", feature = "train"))]

mod devices;
mod kernels;
mod nccl;
#[expect(dead_code, reason = "tests of the program use the rest")]
mod support;

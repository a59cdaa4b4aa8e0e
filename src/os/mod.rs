//! Thin safe wrappers of system calls (layer L1).
//!
//! Makes no decisions. It is the only module of the launcher with `unsafe` code.

pub mod atomic;
#[cfg(feature = "cli")]
pub mod calendar;
pub mod cpu;
pub mod files;
pub mod machine;
pub mod net;
pub mod process;
#[cfg(feature = "cli")]
pub mod procfs;
pub mod random;
#[cfg(any(feature = "cli", feature = "nccl"))]
pub mod shared_libraries;
#[cfg(feature = "cli")]
pub mod tasks;
#[cfg(feature = "cli")]
pub mod user;

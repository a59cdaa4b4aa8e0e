//! Thin safe wrappers of system calls (layer L1).
//!
//! Makes no decisions. It is the only module of the launcher with `unsafe` code.

#[cfg(feature = "cli")]
pub mod account;
#[cfg(feature = "cli")]
pub mod affinity;
#[cfg(feature = "cli")]
pub mod asked;
pub mod atomic;
#[cfg(feature = "cli")]
pub mod calendar;
pub mod calls;
#[cfg(feature = "cli")]
pub mod code;
#[cfg(feature = "cli")]
pub mod errand;
pub mod family;
pub mod fds;
pub mod fork;
#[cfg(feature = "cli")]
pub mod heap;
#[cfg(feature = "cli")]
pub mod heard;
pub mod input_file;
pub mod interfaces;
pub mod io_errors;
pub mod memory;
#[cfg(feature = "cli")]
pub mod names;
#[cfg(feature = "cli")]
pub mod ports;
#[cfg(feature = "cli")]
pub mod procfs;
#[cfg(feature = "cli")]
pub mod shared_file;
#[cfg(any(feature = "cli", feature = "nccl"))]
pub mod shared_libraries;
pub mod signals;
pub(crate) mod simd;
#[cfg(feature = "cli")]
pub mod sourced;
#[cfg(feature = "cli")]
pub mod tasks;
#[cfg(feature = "cli")]
pub mod watch;

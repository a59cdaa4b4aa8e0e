//! L1: thin wrappers of the kernel. Decides nothing; the only rooms of the launcher with `unsafe`.

#[cfg(feature = "cli")]
pub mod account;
#[cfg(feature = "cli")]
pub mod affinity;
#[cfg(feature = "cli")]
pub mod asked;
pub mod atomic;
#[cfg(feature = "cli")]
pub mod calendar;
#[cfg(feature = "cli")]
pub mod code;
pub mod family;
pub mod fds;
pub mod fork;
#[cfg(feature = "cli")]
pub mod heap;
#[cfg(feature = "cli")]
pub mod interfaces;
pub mod memory;
#[cfg(feature = "cli")]
pub mod names;
#[cfg(feature = "cli")]
pub mod ports;
#[cfg(feature = "cli")]
pub mod shared_file;
#[cfg(any(feature = "cli", feature = "nccl"))]
pub mod shared_libraries;
pub mod signals;
#[cfg(feature = "cli")]
pub mod sourced;
#[cfg(feature = "cli")]
pub mod tasks;
#[cfg(feature = "cli")]
pub mod watch;

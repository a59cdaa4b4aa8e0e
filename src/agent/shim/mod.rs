//! The shim, the process between agent and workers: only the shim forks, reaps and signals workers.
//! It has one thread and no async runtime, so `fork` copies nothing inconsistent, and the
//! parent-death signal of a worker means that this process has exited.

mod handle;
mod message;
mod run;

pub(super) use handle::{Shim, ShimHandle};
pub(super) use message::{FromShim, ShimWorker, ToShim};

//! The shim, the process between agent and workers: only the shim forks, reaps and signals workers.
//! It has one thread and no async runtime, so a child that shares its memory until exec finds nothing
//! inconsistent, and the parent-death signal of a worker means that this process has exited.

mod agent_watch;
mod handle;
mod leftovers;
mod message;
mod run;
mod shim_process;
mod signal_workers;
mod start_worker;

pub(super) use handle::Shim;
pub(super) use message::ShimWorker;
pub use message::{FromShim, TERMINATION_SIGNALS, ToShim};
pub(super) use shim_process::ShimProcess;

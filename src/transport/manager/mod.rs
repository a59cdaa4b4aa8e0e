//! Agents that a process manager starts: Slurm's `srun`, `mpirun` of an MPI, and the like.
//!
//! ```text
//! launcher ── manager (srun) ··· daemons of the cluster ··· remuda node ── remuda agent
//!     └── acceptor ══════════════ Noise over TCP ════════════════╯
//! ```
//!
//! One command of the manager starts one process on every node. That process reads a [`Ticket`] from
//! standard input, finds out which node it is, and connects to the launcher, as a node does that a user
//! starts (`dial`). The manager carries no output and decides nothing about the job.
//!
//! A manager is data: one value of [`ProcessManager`] (`spec`) in its own file of `kinds`, and a row of
//! [`PROCESS_MANAGERS`] (`known_managers`). Other code reads its fields and compares no manager by name, so a new manager
//! needs no other change.

mod command;
mod gpu_counts;
pub mod kinds;
mod known_managers;
mod process;
mod program;
mod spec;
mod ssh_lines;
mod ticket;

pub use gpu_counts::GpuCounts;
pub use known_managers::PROCESS_MANAGERS;
pub use process::{ManagerEvent, ManagerOptions, ManagerProcess, ManagerProgress};
pub use program::check_program;
pub use spec::{NeededAllocation, ProcessManager};
pub use ticket::{Ticket, TicketError, TicketHost};

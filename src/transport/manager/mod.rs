//! Agents that a process manager starts: Slurm's `srun`, `mpirun` of an MPI, and the like.
//!
//! ```text
//! launcher ── manager (srun) ··· daemons of the cluster ··· remuda node ── remuda agent
//!     └── acceptor ══════════════ Noise over TCP ════════════════╯
//! ```
//!
//! One command of the manager starts one process on every node. That process reads a [`Ticket`] from
//! standard input, finds out which node it is, and connects to the launcher, as a node does that a user
//! starts (`dial`). The manager carries no output and decides nothing about the job. A manager is a row of
//! a table (`command`); nothing else knows its options.

mod command;
mod ended_tasks;
mod kind;
mod process;
mod program;
mod ticket;

pub use command::ManagerCommand;
pub use kind::ProcessManager;
pub use process::{GpuCounts, ManagerEvent, ManagerOptions, ManagerProcess, ManagerProgress};
pub use program::check_program;
pub use ticket::{Ticket, TicketError, TicketHost};

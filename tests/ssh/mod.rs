//! Goal: a launch over ssh is correct, reports the first cause of a failure, and leaves no process
//! or file on any host. Method: the real program, OpenSSH's ssh and sshd as ordinary processes, real
//! login shells. Unreachable hosts are real sshds that refuse.
//!
//! | what | where |
//! |---|---|
//! | a launch: environment, exit codes, bytes of arguments, secrets | `launch` |
//! | the agent's executable: sent, cached, pruned, damaged, without a directory | `bring` |
//! | login shells, banners, slow and broken start-up files | `shells` |
//! | options of DeepSpeed and `remuda ssh` over connections | `commands` |
//! | unreachable hosts and their messages | `refused` |
//! | the launcher of an `MPIJob`, whose hosts start late or never | `mpi_job` |
//! | any process of remuda killed, by a table or at random | `killed`, `chaos` |
//! | hosts that a job can do without: absent, lost, back again, spares | `elastic` |
//! | a failure that spreads from one host to the others | `cascades` |
//! | a function of Python on several hosts | `python` |

mod bring;
mod cascades;
mod chaos;
pub(crate) mod cluster;
mod commands;
mod elastic;
mod killed;
mod launch;
mod mpi_job;
mod python;
mod refused;
mod shells;

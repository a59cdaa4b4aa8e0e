//! Goal: a launch on hosts that are reached over ssh is correct and truthful, and leaves nothing
//! behind on any of them. Method: the real program, OpenSSH's own ssh and sshd as ordinary
//! processes, real login shells. Who is not reached, and why, is played by real sshds that refuse.
//!
//! | what | where |
//! |---|---|
//! | a launch: environment, exit codes, bytes of arguments, secrets | `launch` |
//! | the agent brings itself: pushed, cached, pruned, damaged, nowhere | `bring` |
//! | login shells, banners, slow and broken start-up files | `shells` |
//! | options of DeepSpeed and `remuda ssh` over connections | `commands` |
//! | who cannot be reached, and what is said | `refused` |
//! | the launcher of an `MPIJob`, whose hosts come late or never | `mpi_job` |
//! | any of our processes killed, in one way or at random | `killed`, `chaos` |
//! | a failure that spreads from one host to the others | `cascades` |

#![cfg(all(feature = "cli", feature = "train"))]

#[expect(dead_code, reason = "each test program uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod bring;
mod cascades;
mod chaos;
mod cluster;
mod commands;
mod killed;
mod launch;
mod mpi_job;
mod refused;
mod shells;

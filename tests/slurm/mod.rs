//! Jobs inside an allocation of a real Slurm, whose daemons the test starts.

mod allocation;
mod chaos;
mod cluster;
mod lines;

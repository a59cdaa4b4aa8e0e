//! One file for each process manager, or for several that share a command line.

mod flux;
mod hydra;
mod lsf;
mod open_mpi;
mod pbs;
mod slurm;

pub use flux::FLUX;
pub use hydra::{INTEL_MPI, MPICH, MVAPICH};
pub use lsf::LSF;
pub use open_mpi::OPEN_MPI;
pub use pbs::PBS;
pub use slurm::SLURM;

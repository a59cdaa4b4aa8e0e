//! Process managers by name.

use std::fmt;

/// A program that starts processes on the nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessManager {
    /// `srun` of Slurm.
    Slurm,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH.
    Mpich,
    /// `mpiexec.hydra` of Intel MPI.
    IntelMpi,
    /// `mpiexec` of MVAPICH.
    Mvapich,
    /// `pbsdsh` of PBS: that of Torque, which has `-u` (once on every host).
    Pbs,
    /// `blaunch` of LSF.
    Lsf,
    /// `flux exec` of Flux.
    Flux,
}

impl ProcessManager {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Slurm,
        Self::OpenMpi,
        Self::Mpich,
        Self::IntelMpi,
        Self::Mvapich,
        Self::Pbs,
        Self::Lsf,
        Self::Flux,
    ];

    /// Returns its name on a command line; those of MPIs and Slurm are DeepSpeed's.
    pub fn option(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::IntelMpi => "impi",
            Self::Mvapich => "mvapich",
            Self::Pbs => "pbs",
            Self::Lsf => "lsf",
            Self::Flux => "flux",
        }
    }

    /// Returns the names of the program that starts processes, the least ambiguous first: a system can
    /// have several MPIs.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Slurm => &["srun"],
            Self::OpenMpi => &["mpirun.openmpi", "mpirun"],
            Self::Mpich => &["mpiexec.mpich", "mpiexec"],
            Self::Mvapich => &["mpiexec.mvapich", "mpiexec"],
            Self::IntelMpi => &["mpiexec.hydra"],
            Self::Pbs => &["pbsdsh"],
            Self::Lsf => &["blaunch"],
            Self::Flux => &["flux"],
        }
    }

    /// Returns the package of Debian that has the program, if there is one.
    pub(super) fn package(self) -> Option<&'static str> {
        match self {
            Self::Slurm => Some("slurm-client"),
            Self::OpenMpi => Some("openmpi-bin"),
            Self::Mpich => Some("mpich"),
            Self::IntelMpi | Self::Mvapich | Self::Pbs | Self::Lsf | Self::Flux => None,
        }
    }

    /// Whether it numbers the processes of a command in the order of the hosts.
    pub fn numbers_in_order(self) -> bool {
        !matches!(self, Self::Pbs | Self::Flux)
    }

    /// Whether all processes of a command can read its standard input. Open MPI 4.1 hangs if it is asked
    /// for that, MPICH has no option for it, and PBS passes none.
    pub(super) fn passes_stdin(self) -> bool {
        matches!(self, Self::Slurm | Self::Lsf | Self::Flux)
    }
}

impl fmt::Display for ProcessManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slurm => "Slurm",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::IntelMpi => "Intel MPI",
            Self::Mvapich => "MVAPICH",
            Self::Pbs => "PBS",
            Self::Lsf => "LSF",
            Self::Flux => "Flux",
        })
    }
}

//! Process managers by name.

use std::fmt;
use std::path::PathBuf;

/// A name of the program of a process manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramName {
    name: &'static str,
    /// A program that the manager installs in the same directory, where other managers use this name too.
    beside: Option<&'static str>,
}

impl ProgramName {
    const fn own(name: &'static str) -> Self {
        Self { name, beside: None }
    }

    const fn shared(name: &'static str, beside: &'static str) -> Self {
        Self { name, beside: Some(beside) }
    }
}

const SRUN: ProgramName = ProgramName::own("srun");
const MPIRUN_OPENMPI: ProgramName = ProgramName::own("mpirun.openmpi");
const MPIRUN: ProgramName = ProgramName::shared("mpirun", "ompi_info");
const MPIEXEC_MPICH: ProgramName = ProgramName::own("mpiexec.mpich");
const MPIEXEC_MVAPICH: ProgramName = ProgramName::own("mpiexec.mvapich");
const MPIEXEC: ProgramName = ProgramName::shared("mpiexec", "mpichversion");
const MPIEXEC_HYDRA: ProgramName = ProgramName::shared("mpiexec.hydra", "impi_info");
const PBSDSH: ProgramName = ProgramName::own("pbsdsh");
const BLAUNCH: ProgramName = ProgramName::own("blaunch");
const FLUX: ProgramName = ProgramName::own("flux");

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
    fn programs(self) -> &'static [ProgramName] {
        match self {
            Self::Slurm => &[SRUN],
            Self::OpenMpi => &[MPIRUN_OPENMPI, MPIRUN],
            Self::Mpich => &[MPIEXEC_MPICH, MPIEXEC],
            Self::Mvapich => &[MPIEXEC_MVAPICH, MPIEXEC],
            Self::IntelMpi => &[MPIEXEC_HYDRA],
            Self::Pbs => &[PBSDSH],
            Self::Lsf => &[BLAUNCH],
            Self::Flux => &[FLUX],
        }
    }

    /// Returns the name of its program: in the first of these directories that has it, else the first name that
    /// is in any of them, else the usual one.
    pub(super) fn find_program(self, dirs: &[PathBuf]) -> &'static str {
        let names = self.programs();
        let has = |dir: &PathBuf, program: &ProgramName| dir.join(program.name).is_file();
        let is_own = |dir: &PathBuf, program: &&ProgramName| {
            has(dir, program) && program.beside.is_none_or(|other| dir.join(other).is_file())
        };
        let in_dir = |dir: &PathBuf| names.iter().find(|program| is_own(dir, program));
        let ambiguous = || names.iter().find(|program| dirs.iter().any(|dir| has(dir, program)));
        let found = dirs.iter().find_map(in_dir).or_else(ambiguous);
        found.map_or(self.usual_program(), |program| program.name)
    }

    /// Returns the usual name of its program.
    pub fn usual_program(self) -> &'static str {
        let names = self.programs();
        names[names.len() - 1].name
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_the_first_of_the_manager_in_path() {
        let root = std::env::temp_dir().join(format!("remuda-managers-{}", std::process::id()));
        let install = |dir: &str, programs: &[&str]| {
            std::fs::create_dir_all(root.join(dir)).expect("a directory");
            for program in programs {
                std::fs::write(root.join(dir).join(program), "").expect("a file");
            }
        };
        install("debian", &["mpirun", "ompi_info", "mpirun.openmpi", "mpiexec", "mpiexec.mpich"]);
        install("openmpi", &["mpirun", "mpiexec", "ompi_info"]);
        install("mpich", &["mpirun", "mpiexec", "mpiexec.hydra", "mpichversion"]);
        install("impi", &["mpirun", "mpiexec", "mpiexec.hydra", "impi_info"]);
        let check = |manager: ProcessManager, dirs: &[&str], expected: &str| {
            let dirs: Vec<_> = dirs.iter().map(|dir| root.join(dir)).collect();
            assert_eq!(manager.find_program(&dirs), expected, "{dirs:?}");
        };
        check(ProcessManager::OpenMpi, &["openmpi", "debian"], "mpirun");
        check(ProcessManager::OpenMpi, &["mpich", "impi", "debian"], "mpirun.openmpi");
        check(ProcessManager::OpenMpi, &["mpich"], "mpirun");
        check(ProcessManager::Mpich, &["mpich", "debian"], "mpiexec");
        check(ProcessManager::Mpich, &["openmpi", "impi", "debian"], "mpiexec.mpich");
        check(ProcessManager::Slurm, &["mpich"], "srun");
        std::fs::remove_dir_all(root).expect("it is there");
    }
}

//! What remuda knows about a process manager, as data: each is one value of [`ProcessManager`], in its own
//! file of `kinds`.

use std::fmt;
use std::path::PathBuf;

/// A program that starts processes on the nodes of a cluster. Two are equal if their `--launcher` is.
pub struct ProcessManager {
    /// Its name in messages: `Open MPI`.
    pub name: &'static str,
    /// Its name on a command line; those of MPIs and Slurm are DeepSpeed's.
    pub option: &'static str,
    /// MPIs with the same options, if it is the launcher of an MPI, of which a system can have several.
    pub(super) mpi: Option<MpiFamily>,
    /// Names of the program that starts processes, the least ambiguous first and the usual one last.
    pub(super) programs: &'static [ProgramName],
    /// The package of Debian that has the program, if there is one.
    pub(super) package: Option<&'static str>,
    /// Makes the options of the program that start one process on each of these hosts.
    pub(super) options: fn(&CommandTarget<'_>) -> Vec<String>,
    /// What stands between the options of the user and the program to start.
    pub(super) separator: Option<&'static str>,
    /// Variables that the manager's program needs.
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// How the processes of a command get their ticket.
    pub(super) ticket: TicketSource,
    /// Whether it numbers the processes of a command in the order of the hosts.
    pub numbers_in_order: bool,
    /// Variable in which a process of a command finds its number.
    pub number_variable: Option<&'static str>,
    /// Variable in which a process of a command finds the name of its node.
    pub node_name_variable: Option<&'static str>,
    /// Returns the number of GPUs of each node that the scheduler gave to the job, if the program has an option
    /// for it.
    pub(super) gpus_per_node: Option<fn() -> Option<u32>>,
    /// Reads the names of the hosts whose processes have ended from a line that the program prints while others
    /// run. Most programs print none.
    pub(super) ended_hosts: Option<fn(&str) -> Vec<String>>,
    /// The allocation of the scheduler without which the program starts nothing.
    pub allocation: Option<NeededAllocation>,
}

/// MPIs whose programs have the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MpiFamily {
    OpenMpi,
    /// Those of MPICH, which the MPIs that descend from it have too.
    Hydra,
}

/// An allocation that a process manager needs.
#[derive(Clone, Copy, Debug)]
pub struct NeededAllocation {
    /// Variable that is set inside an allocation.
    pub(super) variable: &'static str,
    /// Command that makes an allocation and runs a program in it, up to the number of nodes.
    pub command: &'static str,
    /// Command that runs a script in an allocation later.
    pub(super) batch_command: &'static str,
}

/// How the processes of a command get their ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketSource {
    /// All of them can read the standard input of the manager.
    StandardInput,
    /// They read a private file in the home directory: the manager passes standard input to none of them, or
    /// not to all.
    PrivateFile,
}

/// Where a command starts its processes: one on each of these hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandTarget<'a> {
    /// Names of the hosts.
    pub(super) hosts: &'a [&'a str],
    /// GPUs of each node that the scheduler gave to the job, for managers with an option for it.
    pub(super) gpus_per_node: Option<u32>,
    /// Whether the user is root: Open MPI refuses root without an option.
    pub(super) is_root: bool,
}

/// A name of the program of a process manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramName {
    name: &'static str,
    /// A program that the manager installs in the same directory, where other managers use this name too.
    beside: Option<&'static str>,
}

impl ProgramName {
    /// A name that no other manager uses.
    pub(super) const fn own(name: &'static str) -> Self {
        Self { name, beside: None }
    }

    /// A name that other managers use too; only this manager has `beside` in the same directory.
    pub(super) const fn shared(name: &'static str, beside: &'static str) -> Self {
        Self { name, beside: Some(beside) }
    }
}

impl ProcessManager {
    /// Returns the name of its program: in the first of these directories that has it, else the first name that
    /// is in any of them, else the usual one.
    pub(super) fn find_program(&self, dirs: &[PathBuf]) -> &'static str {
        let has = |dir: &PathBuf, program: &ProgramName| dir.join(program.name).is_file();
        let is_own = |dir: &PathBuf, program: &&ProgramName| {
            has(dir, program) && program.beside.is_none_or(|other| dir.join(other).is_file())
        };
        let in_dir = |dir: &PathBuf| self.programs.iter().find(|program| is_own(dir, program));
        let ambiguous =
            || self.programs.iter().find(|program| dirs.iter().any(|dir| has(dir, program)));
        let found = dirs.iter().find_map(in_dir).or_else(ambiguous);
        found.map_or(self.usual_program(), |program| program.name)
    }

    /// Returns whether it is the launcher of an MPI.
    pub fn is_mpi(&self) -> bool {
        self.mpi.is_some()
    }

    /// Returns the usual name of its program.
    pub fn usual_program(&self) -> &'static str {
        self.programs[self.programs.len() - 1].name
    }
}

impl PartialEq for ProcessManager {
    fn eq(&self, other: &Self) -> bool {
        self.option == other.option
    }
}

impl Eq for ProcessManager {}

impl fmt::Debug for ProcessManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessManager").field(&self.option).finish()
    }
}

impl fmt::Display for ProcessManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::manager::kinds::{MPICH, OPEN_MPI, SLURM};

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
        let check = |manager: &ProcessManager, dirs: &[&str], expected: &str| {
            let dirs: Vec<_> = dirs.iter().map(|dir| root.join(dir)).collect();
            assert_eq!(manager.find_program(&dirs), expected, "{dirs:?}");
        };
        check(&OPEN_MPI, &["openmpi", "debian"], "mpirun");
        check(&OPEN_MPI, &["mpich", "impi", "debian"], "mpirun.openmpi");
        check(&OPEN_MPI, &["mpich"], "mpirun");
        check(&MPICH, &["mpich", "debian"], "mpiexec");
        check(&MPICH, &["openmpi", "impi", "debian"], "mpiexec.mpich");
        check(&SLURM, &["mpich"], "srun");
        std::fs::remove_dir_all(root).expect("it is there");
    }
}

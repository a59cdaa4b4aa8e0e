//! The program of a process manager in PATH: whether it is there, and whether it belongs to the MPI that is meant.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::base::env_vars;
use crate::transport::manager::kinds::{INTEL_MPI, MPICH, OPEN_MPI};
use crate::transport::manager::spec::ProcessManager;
use crate::transport::{Fault, FaultKind};

/// Checks that the program of a manager is in PATH and is not that of another MPI. Starts nothing.
///
/// # Errors
/// [`FaultKind::NoProgram`] with the advice what to type instead.
pub fn check_program(manager: &ProcessManager) -> Result<(), Fault> {
    check_in(manager, &search_dirs())
}

/// Returns the directories of PATH.
pub(super) fn search_dirs() -> Vec<PathBuf> {
    let path = env_vars::get(env_vars::PATH).unwrap_or_default();
    std::env::split_paths(&path).collect()
}

fn check_in(manager: &ProcessManager, dirs: &[PathBuf]) -> Result<(), Fault> {
    let program = manager.find_program(dirs);
    let path = dirs.iter().map(|dir| dir.join(program)).find(|path| path.is_file());
    let Some(path) = path else {
        let words = format!("there is no `{program}` in PATH");
        let fault = Fault::new(FaultKind::NoProgram, words);
        return Err(fault.with_advice(help_to_get(manager, program)));
    };
    match mpi_of(&path).filter(|found| manager.is_mpi() && found.mpi != manager.mpi) {
        Some(found) => Err(of_other_mpi(manager, &path, found)),
        None => Ok(()),
    }
}

/// Returns where a user gets the program of a manager.
pub(super) fn help_to_get(manager: &ProcessManager, program: &str) -> String {
    let package = manager.package.map(|name| format!(" (Debian: `apt install {name}`)"));
    let package = package.unwrap_or_default();
    format!(
        "`{program}` belongs to {manager}: load its module or install it{package}; `--launcher ssh` \
         starts the agents without it"
    )
}

/// Returns the MPI to which a program belongs, by the name of the file behind its links, or by a program beside
/// it; `None` if it is not known.
fn mpi_of(path: &Path) -> Option<&'static ProcessManager> {
    let file = fs::canonicalize(path).ok()?;
    let has_beside = |program: &str| file.with_file_name(program).is_file();
    let stem = file.file_stem()?.to_str()?;
    // Systems keep all MPIs in one directory, where only links say what a program is.
    match (stem, file.extension().and_then(OsStr::to_str)) {
        ("orterun" | "prterun" | "prun", None) | (_, Some("openmpi")) => Some(&OPEN_MPI),
        (_, Some("mpich")) => Some(&MPICH),
        (_, Some("hydra")) if !has_beside("impi_info") => Some(&MPICH),
        _ => {
            let mut beside = BESIDE.iter().filter(|(program, _)| has_beside(program));
            beside.next().map(|(_, manager)| *manager).filter(|_| beside.next().is_none())
        }
    }
}

/// Programs that an MPI installs beside its launcher.
static BESIDE: [(&str, &ProcessManager); 3] =
    [("ompi_info", &OPEN_MPI), ("impi_info", &INTEL_MPI), ("mpichversion", &MPICH)];

fn of_other_mpi(manager: &ProcessManager, path: &Path, found: &ProcessManager) -> Fault {
    let (path, own, other) = (path.display(), manager.option, found.option);
    let words =
        format!("`{path}` belongs to {found}, and `--launcher {own}` needs that of {manager}");
    let help = format!(
        "type `--launcher {other}`, or load the module of {manager}, so that its program is the first in PATH; \
         `--launcher ssh` starts the agents without MPI"
    );
    Fault::new(FaultKind::NoProgram, words).with_advice(help)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::transport::manager::kinds::MVAPICH;

    /// Directories with the programs of several MPIs, as systems and modules install them.
    struct Installed(PathBuf);

    impl Installed {
        fn new() -> Self {
            let root = std::env::temp_dir().join(format!("remuda-mpis-{}", std::process::id()));
            let install = |dir: &str, programs: &[&str], links: &[(&str, &str)]| {
                let dir = root.join(dir);
                fs::create_dir_all(&dir).expect("a directory");
                for program in programs {
                    fs::write(dir.join(program), "").expect("a file");
                }
                for (link, file) in links {
                    symlink(file, dir.join(link)).expect("a link");
                }
            };
            let debian = ["orterun", "ompi_info", "mpiexec.hydra", "mpichversion"];
            let links = [("mpiexec", "orterun"), ("mpirun", "orterun")];
            install(
                "debian",
                &debian,
                &[&links[..], &[("mpiexec.mpich", "mpiexec.hydra")]].concat(),
            );
            install("openmpi", &["mpirun", "mpiexec", "ompi_info"], &[]);
            install("mpich", &["mpirun", "mpiexec", "mpiexec.hydra", "mpichversion"], &[]);
            install("impi", &["mpirun", "mpiexec", "mpiexec.hydra", "impi_info"], &[]);
            install("unknown", &["mpirun", "mpiexec", "mpiexec.hydra"], &[]);
            Self(root)
        }

        /// What is wrong with the program of a manager in these directories.
        fn problem(&self, manager: &ProcessManager, dirs: &[&str]) -> Option<String> {
            let dirs: Vec<_> = dirs.iter().map(|dir| self.0.join(dir)).collect();
            let fault = check_in(manager, &dirs).err()?;
            Some(fault.detail.replace(&*self.0.to_string_lossy(), "DIR"))
        }
    }

    impl Drop for Installed {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn program_of_another_mpi_is_recognized() {
        let installed = Installed::new();
        let fits = |manager: &ProcessManager, dirs: &[&str]| {
            assert_eq!(installed.problem(manager, dirs), None, "{dirs:?}");
        };
        fits(&OPEN_MPI, &["openmpi"]);
        fits(&OPEN_MPI, &["debian"]);
        fits(&MPICH, &["debian"]);
        fits(&MPICH, &["impi"]);
        fits(&MVAPICH, &["mpich"]);
        fits(&INTEL_MPI, &["impi", "debian"]);
        fits(&MVAPICH, &["unknown"]);
        let check = |manager: &ProcessManager, dirs: &[&str], expect: &str| {
            assert_eq!(installed.problem(manager, dirs).as_deref(), Some(expect));
        };
        check(
            &MVAPICH,
            &["debian"],
            "`DIR/debian/mpiexec` belongs to Open MPI, and `--launcher mvapich` needs that of MVAPICH",
        );
        check(
            &MPICH,
            &["openmpi"],
            "`DIR/openmpi/mpiexec` belongs to Open MPI, and `--launcher mpich` needs that of MPICH",
        );
        check(
            &OPEN_MPI,
            &["impi"],
            "`DIR/impi/mpirun` belongs to Intel MPI, and `--launcher openmpi` needs that of Open MPI",
        );
        check(&INTEL_MPI, &["openmpi"], "there is no `mpiexec.hydra` in PATH");
    }
}

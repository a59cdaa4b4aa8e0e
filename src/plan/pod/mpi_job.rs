//! The hostfile that an MPI job operator mounts into a pod: its hosts, and whether the pod is the
//! launcher. Pure.

use std::collections::BTreeMap;

use crate::base::env_vars;
use crate::pool::{Host, ReadOptions, read_any};

/// The path at which operators mount it.
const DEFAULT_PATH: &str = "/etc/mpi/hostfile";

/// Variables that hold its path, of Open MPI 4 and 5, Intel's MPI and MPICH.
const PATH_VARIABLES: [&str; 4] = [
    env_vars::OMPI_MCA_ORTE_DEFAULT_HOSTFILE,
    env_vars::PRTE_MCA_PRTE_DEFAULT_HOSTFILE,
    env_vars::I_MPI_HYDRA_HOST_FILE,
    env_vars::HYDRA_HOST_FILE,
];

/// The content of a hostfile; reading it is the caller's task.
#[derive(Clone, Debug)]
pub struct MpiHostfile {
    /// Path of the hostfile.
    pub path: String,
    /// The variable that holds the path, and its value.
    pub source: (String, String),
    /// The text, or why it cannot be read.
    pub text: Result<String, String>,
}

/// The path of the hostfile, and the variable that holds it, with its value.
pub fn mpi_hostfile_path(env: &BTreeMap<String, String>) -> Option<(String, (String, String))> {
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty());
    let named = PATH_VARIABLES.into_iter().find_map(|name| Some((name, set(name)?)));
    if let Some((name, path)) = named {
        return Some((path.clone(), (name.to_owned(), path.clone())));
    }
    let role = set(env_vars::K_MPI_JOB_ROLE)?;
    Some((DEFAULT_PATH.to_owned(), (env_vars::K_MPI_JOB_ROLE.to_owned(), role.clone())))
}

/// The role of this machine in a hostfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostfileRole {
    /// The machine is one of the hosts.
    Host(HostPosition),
    /// The machine is not in the hostfile, which has this many hosts: it is the launcher of the
    /// job.
    Launcher(usize),
}

/// The position of a machine among the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPosition {
    pub(crate) rank: u32,
    pub(crate) nodes: u32,
    pub(crate) slots: u32,
    /// Name of the first host.
    pub(crate) first: String,
    /// The common name of all hosts, without their number.
    pub(crate) base: Option<String>,
}

/// Finds this machine in the hostfile; the error is a short description of the problem.
pub(crate) fn read(path: &str, text: &str, hostname: &str) -> Result<HostfileRole, &'static str> {
    let reading = read_any(path, text.as_bytes(), ReadOptions::default());
    let hosts = reading.hostfile.hosts();
    let Some(first) = hosts.first().filter(|_| !reading.findings.has_errors()) else {
        return Err("a readable hostfile");
    };
    let Some(rank) = hosts.iter().position(|host| short_name(host) == hostname) else {
        return Ok(HostfileRole::Launcher(hosts.len()));
    };
    if hosts.iter().any(|host| host.slots != first.slots) {
        return Err("a hostfile with equal slots on all hosts");
    }
    let base = short_name(first).strip_suffix("-0").filter(|base| {
        let is_named = |(rank, host)| short_name(host) == format!("{base}-{rank}");
        hosts.iter().enumerate().all(is_named)
    });
    Ok(HostfileRole::Host(HostPosition {
        rank: rank as u32,
        nodes: hosts.len() as u32,
        slots: first.slots.get(),
        first: first.name.to_string(),
        base: base.map(str::to_owned),
    }))
}

/// A name without its domain.
fn short_name(host: &Host) -> &str {
    host.name.as_str().split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, hostname: &str, expect: &str) {
        let found = match read("hostfile", text, hostname) {
            Err(problem) => format!("not {problem}"),
            Ok(HostfileRole::Launcher(hosts)) => format!("launcher of {hosts}"),
            Ok(HostfileRole::Host(HostPosition { rank, nodes, slots, first, base })) => {
                format!("{rank} of {nodes} x{slots} at {first}, {}", base.unwrap_or_default())
            }
        };
        assert_eq!(found, expect);
    }

    const OPEN_MPI: &str = "pi-worker-0.pi.ml.svc slots=2\npi-worker-1.pi.ml.svc slots=2\n";

    #[test]
    fn hostfile_distinguishes_launcher_and_nodes() {
        check(OPEN_MPI, "pi-worker-1", "1 of 2 x2 at pi-worker-0.pi.ml.svc, pi-worker");
        check(OPEN_MPI, "pi-launcher", "launcher of 2");
        let with_launcher = format!("pi-launcher.pi.ml.svc slots=2\n{OPEN_MPI}");
        check(&with_launcher, "pi-launcher", "0 of 3 x2 at pi-launcher.pi.ml.svc, ");
        check(&with_launcher, "pi-worker-1", "2 of 3 x2 at pi-launcher.pi.ml.svc, ");
        check("a-0.x:4\na-1.x:4\n", "a-0", "0 of 2 x4 at a-0.x, a");
        check("a-0 slots=1\na-1 slots=2\n", "a-1", "not a hostfile with equal slots on all hosts");
        check("", "a", "not a readable hostfile");
        check("a slots=many\n", "a", "not a readable hostfile");
    }

    #[test]
    fn hostfile_path_is_from_variable_or_default() {
        #[track_caller]
        fn check(env: &[(&str, &str)], expect: Option<(&str, &str)>) {
            let owned = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let found = mpi_hostfile_path(&owned.collect());
            let found = found.as_ref().map(|(path, (name, _))| (path.as_str(), name.as_str()));
            assert_eq!(found, expect);
        }
        check(&[], None);
        check(&[("K_MPI_JOB_ROLE", "worker")], Some((DEFAULT_PATH, "K_MPI_JOB_ROLE")));
        let open_mpi = "OMPI_MCA_orte_default_hostfile";
        check(&[("K_MPI_JOB_ROLE", "launcher"), (open_mpi, "/hosts")], Some(("/hosts", open_mpi)));
        check(&[("I_MPI_HYDRA_HOST_FILE", "/a")], Some(("/a", "I_MPI_HYDRA_HOST_FILE")));
        check(&[("HYDRA_HOST_FILE", "/a")], Some(("/a", "HYDRA_HOST_FILE")));
        check(&[(open_mpi, "")], None);
    }
}

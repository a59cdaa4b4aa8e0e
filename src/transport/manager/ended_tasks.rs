//! Lines in which a process manager says that a process of its command has ended. Pure.

use super::kind::ProcessManager;
use crate::pool::nodeset::read_list;

/// The names of the hosts whose processes have ended, if this line says so. Only `srun` prints such lines while
/// other processes of the command run.
pub(super) fn hosts_of_ended_tasks(manager: ProcessManager, line: &str) -> Vec<String> {
    if manager != ProcessManager::Slurm {
        return Vec::new();
    }
    // `srun: error: node[01-02]: tasks 0-1: Exited with exit code 1`
    let hosts = || Some(line.strip_prefix("srun: error: ")?.split_once(": task")?.0);
    let patterns = hosts().and_then(|hosts| read_list(hosts, 0).ok()).unwrap_or_default();
    let hosts = patterns.iter().flat_map(|(pattern, _)| pattern.hosts());
    hosts.map(|host| host.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srun_names_the_hosts_whose_tasks_have_ended() {
        #[track_caller]
        fn check(line: &str, expected: &[&str]) {
            assert_eq!(hosts_of_ended_tasks(ProcessManager::Slurm, line), expected);
        }
        let killed = "srun: error: node03: task 2: Killed";
        check(killed, &["node03"]);
        let exited = "srun: error: node[01-02,04]: tasks 0-1,3: Exited with exit code 1";
        check(exited, &["node01", "node02", "node04"]);
        check("srun: error: Unable to create step for job 2: Requested nodes are busy", &[]);
        check("remuda: node 2: cannot connect", &[]);
        assert!(hosts_of_ended_tasks(ProcessManager::OpenMpi, killed).is_empty());
    }
}

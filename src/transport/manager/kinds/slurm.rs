//! `srun` of Slurm.

use crate::base::env_vars;
use crate::pool::nodeset::read_list;
use crate::transport::manager::gpu_counts::GpuCounts;
use crate::transport::manager::spec::{
    CommandTarget, NeededAllocation, ProcessManager, ProgramName, TicketSource,
};

/// Options of every command. It is a step beside others, with all CPUs and the whole memory of the job on its
/// nodes; a task that ends does not end the others, and output goes through remuda.
const STEP_OPTIONS: [&str; 11] = [
    "--ntasks-per-node=1",
    "--overlap",
    "--cpu-bind=none",
    "--mem=0",
    "--mpi=none",
    "--input=all",
    "--unbuffered",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--quit-on-interrupt",
    "--job-name=remuda",
];

/// `srun` of Slurm. It starts processes only inside an allocation, and names the nodes whose processes have
/// ended.
pub static SLURM: ProcessManager = ProcessManager {
    name: "Slurm",
    option: "slurm",
    mpi: None,
    programs: &[ProgramName::own("srun")],
    package: Some("slurm-client"),
    options,
    separator: None,
    environment: &[],
    ticket: TicketSource::StandardInput,
    numbers_in_order: true,
    number_variable: Some(env_vars::SLURM_PROCID),
    node_name_variable: Some(env_vars::SLURMD_NODENAME),
    gpus_per_node: Some(gpus_per_node),
    ended_hosts: Some(ended_hosts),
    allocation: Some(NeededAllocation {
        variable: env_vars::SLURM_JOB_ID,
        command: "salloc -N",
        batch_command: "sbatch",
    }),
};

fn options(target: &CommandTarget<'_>) -> Vec<String> {
    let (count, hosts) = (target.hosts.len(), target.hosts.join(","));
    let mut options = vec![
        format!("--nodes={count}"),
        format!("--ntasks={count}"),
        format!("--nodelist={hosts}"),
    ];
    options.extend(STEP_OPTIONS.map(str::to_owned));
    options.extend(target.gpus_per_node.map(|gpus| format!("--gpus-per-node={gpus}")));
    options
}

/// GPUs of each node of the job, if all nodes have the same number.
fn gpus_per_node() -> Option<u32> {
    GpuCounts::of_environment().of_each_node().filter(|count| 0 < *count)
}

/// The names of the hosts whose tasks have ended, if this line says so:
/// `srun: error: node[01-02]: tasks 0-1: Exited with exit code 1`.
fn ended_hosts(line: &str) -> Vec<String> {
    let hosts = || Some(line.strip_prefix("srun: error: ")?.split_once(": task")?.0);
    let patterns = hosts().and_then(|hosts| read_list(hosts, 0).ok()).unwrap_or_default();
    let hosts = patterns.iter().flat_map(|(pattern, _)| pattern.hosts());
    hosts.map(|host| host.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::manager::command::testing::check_command;

    #[test]
    fn srun_starts_one_task_on_each_node() {
        check_command(
            &SLURM,
            &["--account=a"],
            "srun --nodes=2 --ntasks=2 --nodelist=n1,n2 --ntasks-per-node=1 --overlap --cpu-bind=none \
             --mem=0 --mpi=none --input=all --unbuffered --kill-on-bad-exit=0 --wait=0 \
             --quit-on-interrupt --job-name=remuda --gpus-per-node=8 --account=a /opt/remuda node",
        );
    }

    #[test]
    fn srun_names_the_hosts_whose_tasks_have_ended() {
        #[track_caller]
        fn check(line: &str, expected: &[&str]) {
            assert_eq!(ended_hosts(line), expected);
        }
        check("srun: error: node03: task 2: Killed", &["node03"]);
        let exited = "srun: error: node[01-02,04]: tasks 0-1,3: Exited with exit code 1";
        check(exited, &["node01", "node02", "node04"]);
        check("srun: error: Unable to create step for job 2: Requested nodes are busy", &[]);
        check("remuda: node 2: cannot connect", &[]);
    }
}

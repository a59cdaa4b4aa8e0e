//! `mpirun` of Open MPI. Pure.

use crate::base::env_vars;
use crate::transport::manager::spec::{
    CommandTarget, MpiFamily, ProcessManager, ProgramName, TicketSource,
};
use crate::transport::manager::ssh_lines::unreached_hosts;

/// `mpirun` of Open MPI. Version 4.1 hangs if all processes shall read its standard input.
pub static OPEN_MPI: ProcessManager = ProcessManager {
    name: "Open MPI",
    option: "openmpi",
    mpi: Some(MpiFamily::OpenMpi),
    programs: &[ProgramName::own("mpirun.openmpi"), ProgramName::shared("mpirun", "ompi_info")],
    package: Some("openmpi-bin"),
    options,
    separator: None,
    environment: &[],
    ticket: TicketSource::PrivateFile,
    numbers_in_order: true,
    number_variable: Some(env_vars::OMPI_COMM_WORLD_RANK),
    node_name_variable: None,
    gpus_per_node: None,
    ended_hosts: Some(unreached_hosts),
    allocation: None,
};

fn options(target: &CommandTarget<'_>) -> Vec<String> {
    let (count, hosts) = (target.hosts.len().to_string(), target.hosts.join(","));
    let words = ["--host", &hosts, "-np", &count, "--map-by", "ppr:1:node", "--bind-to", "none"];
    let root = target.is_root.then_some("--allow-run-as-root");
    words.into_iter().chain(root).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::manager::command::testing::check_command;

    #[test]
    fn mpirun_starts_one_process_on_each_node() {
        check_command(
            &OPEN_MPI,
            &["--mca", "btl", "tcp,self"],
            "mpirun --host n1,n2 -np 2 --map-by ppr:1:node --bind-to none \
             --allow-run-as-root --mca btl tcp,self /opt/remuda node",
        );
    }
}

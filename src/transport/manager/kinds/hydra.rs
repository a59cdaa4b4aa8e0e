//! MPIs whose launcher is Hydra: MPICH, Intel MPI and MVAPICH. They differ in the names of their programs.
//! Pure.

use crate::base::env_vars;
use crate::transport::manager::spec::{
    CommandTarget, MpiFamily, ProcessManager, ProgramName, TicketSource,
};
use crate::transport::manager::ssh_lines::unreached_hosts;

/// `mpiexec` of MPICH.
pub static MPICH: ProcessManager = ProcessManager {
    name: "MPICH",
    option: "mpich",
    package: Some("mpich"),
    programs: &[ProgramName::own("mpiexec.mpich"), ProgramName::shared("mpiexec", "mpichversion")],
    ..HYDRA
};

/// `mpiexec.hydra` of Intel MPI. It binds processes to CPUs, which the workers would inherit, unless a
/// variable forbids it.
pub static INTEL_MPI: ProcessManager = ProcessManager {
    name: "Intel MPI",
    option: "impi",
    programs: &[ProgramName::shared("mpiexec.hydra", "impi_info")],
    environment: &[("I_MPI_PIN", "0")],
    ..HYDRA
};

/// `mpiexec` of MVAPICH.
pub static MVAPICH: ProcessManager = ProcessManager {
    name: "MVAPICH",
    option: "mvapich",
    programs: &[
        ProgramName::own("mpiexec.mvapich"),
        ProgramName::shared("mpiexec", "mpichversion"),
    ],
    ..HYDRA
};

/// What they have in common. Hydra has no option that lets all processes read its standard input.
const HYDRA: ProcessManager = ProcessManager {
    name: "Hydra",
    option: "",
    mpi: Some(MpiFamily::Hydra),
    programs: &[],
    package: None,
    options,
    separator: None,
    environment: &[],
    ticket: TicketSource::PrivateFile,
    numbers_in_order: true,
    number_variable: Some(env_vars::PMI_RANK),
    node_name_variable: None,
    gpus_per_node: None,
    ended_hosts: Some(unreached_hosts),
    allocation: None,
};

fn options(target: &CommandTarget<'_>) -> Vec<String> {
    let (count, hosts) = (target.hosts.len().to_string(), target.hosts.join(","));
    let words = ["-hosts", &hosts, "-ppn", "1", "-n", &count, "-disable-auto-cleanup"];
    words.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::manager::command::testing::check_command;

    #[test]
    fn hydra_starts_one_process_on_each_host() {
        let hydra = "-hosts n1,n2 -ppn 1 -n 2 -disable-auto-cleanup /opt/remuda node";
        check_command(&MPICH, &[], &format!("mpiexec {hydra}"));
        check_command(&MVAPICH, &[], &format!("mpiexec {hydra}"));
        check_command(&INTEL_MPI, &[], &format!("mpiexec.hydra {hydra}"));
    }
}

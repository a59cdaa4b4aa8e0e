//! `flux exec` of Flux. Pure.

use crate::transport::manager::spec::{CommandTarget, ProcessManager, ProgramName, TicketSource};

/// `flux exec` of Flux, which starts a process on every node of the instance.
pub static FLUX: ProcessManager = ProcessManager {
    name: "Flux",
    option: "flux",
    mpi: None,
    programs: &[ProgramName::own("flux")],
    package: None,
    options,
    separator: None,
    environment: &[],
    ticket: TicketSource::StandardInput,
    numbers_in_order: false,
    number_variable: None,
    node_name_variable: None,
    gpus_per_node: None,
    ended_hosts: None,
    allocation: None,
};

/// Once on every host of the instance; processes on hosts without a part exit.
fn options(_: &CommandTarget<'_>) -> Vec<String> {
    ["exec", "--rank=all"].map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::manager::command::testing::check_command;

    #[test]
    fn flux_starts_one_process_on_each_host() {
        check_command(&FLUX, &[], "flux exec --rank=all /opt/remuda node");
    }
}

//! `blaunch` of LSF. Pure.

use crate::transport::manager::spec::{CommandTarget, ProcessManager, ProgramName, TicketSource};

/// `blaunch` of LSF, which takes the hosts as one word.
pub static LSF: ProcessManager = ProcessManager {
    name: "LSF",
    option: "lsf",
    mpi: None,
    programs: &[ProgramName::own("blaunch")],
    package: None,
    options,
    separator: None,
    environment: &[],
    ticket: TicketSource::StandardInput,
    numbers_in_order: true,
    number_variable: None,
    node_name_variable: None,
    gpus_per_node: None,
    ended_hosts: None,
    allocation: None,
};

fn options(target: &CommandTarget<'_>) -> Vec<String> {
    vec!["-z".to_owned(), target.hosts.join(" ")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::manager::command::testing::check_command;

    #[test]
    fn blaunch_starts_one_process_on_each_host() {
        check_command(&LSF, &[], "blaunch -z n1 n2 /opt/remuda node");
    }
}

//! `pbsdsh` of PBS. Pure.

use crate::transport::manager::spec::{CommandTarget, ProcessManager, ProgramName, TicketSource};

/// `pbsdsh` of PBS: that of Torque, which has `-u` (once on every host). It passes no standard input.
pub static PBS: ProcessManager = ProcessManager {
    name: "PBS",
    option: "pbs",
    mpi: None,
    programs: &[ProgramName::own("pbsdsh")],
    package: None,
    options,
    separator: Some("--"),
    environment: &[],
    ticket: TicketSource::PrivateFile,
    numbers_in_order: false,
    number_variable: None,
    node_name_variable: None,
    gpus_per_node: None,
    ended_hosts: None,
    allocation: None,
};

/// Once on every host of the job; processes on hosts without a part exit.
fn options(_: &CommandTarget<'_>) -> Vec<String> {
    vec!["-u".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::manager::command::testing::check_command;

    #[test]
    fn pbsdsh_starts_one_process_on_each_host() {
        check_command(&PBS, &[], "pbsdsh -u -- /opt/remuda node");
    }
}

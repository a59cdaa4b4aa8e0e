//! Agents that a real Open MPI or MPICH starts, on this machine.

use crate::support::launch::{Launch, Outcome};
use crate::support::proof::has;

/// A job whose agents this process manager starts.
fn job(manager: &str) -> Launch {
    let launch = Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]);
    launch.options(["--launcher", manager, "-H", "localhost:2"])
}

#[track_caller]
fn lines(outcome: &Outcome) -> Vec<String> {
    let strip = |line: &str| line.split_once("│ ").map_or(line, |(_, rest)| rest).to_owned();
    let mut lines: Vec<_> = outcome.stdout_text().lines().map(strip).collect();
    lines.sort();
    lines
}

/// Workers have the ranks of the job, not the place of the process that MPI started.
#[track_caller]
fn check(manager: &str) {
    let names = "${OMPI_COMM_WORLD_RANK-no} ${PMI_RANK-no}";
    let outcome = job(manager).sh(&format!("echo $RANK of $WORLD_SIZE {names}")).end().code(0);
    assert_eq!(lines(&outcome), ["0 of 2 no no", "1 of 2 no no"]);
    let outcome = job(manager).sh("[ $RANK = 1 ] && exit 7; sleep 1000").end().code(7);
    outcome.says("error[R101]: rank 1 (localhost) exited with code 7");
}

#[test]
fn open_mpi_starts_agents() {
    if has("openmpi", "open_mpi_starts_agents") {
        check("openmpi");
    }
}

#[test]
fn mpich_starts_agents() {
    if has("mpich", "mpich_starts_agents") {
        check("mpich");
    }
}

#[test]
fn manager_that_fails_is_quoted() {
    if !has("openmpi", "manager_that_fails_is_quoted") {
        return;
    }
    let launch = job("openmpi").option("--launcher_args=--no-such-option").program(["true"]);
    launch
        .end()
        .code(69)
        .says("the agent was not started:\n    localhost: `mpirun.openmpi` exited with code 1");
    let outcome = job("lsf").program(["true"]).end().code(127);
    outcome
        .says("a program that remuda needs cannot be started on this machine:")
        .says("localhost: there is no `blaunch` in PATH");
}

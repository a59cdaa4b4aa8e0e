//! Jobs that another program starts with the library: the example `job`, here and over ssh.

use std::fs;

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::{command, example};
use crate::support::scratch::Scratch;

/// Lines of standard output, sorted, because workers print in any order.
fn sorted_lines(stdout: &[u8]) -> Vec<String> {
    let mut lines: Vec<_> = String::from_utf8_lossy(stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn program_starts_a_job_on_this_machine() {
    let dir = Scratch::new("job", "here");
    let mut words = command(example("job"));
    words.env("RUN_DIR", dir.path("runs"));
    words.args(["sh", "-c", "echo $RANK of $WORLD_SIZE, $STARTED_BY"]);
    let output = words.output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = [0, 1, 2, 3].map(|rank| format!("localhost:{rank} │ {rank} of 4, example"));
    assert_eq!(sorted_lines(&output.stdout), expected);
    let screen = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(screen.contains("  Finished  4 workers in "), "{screen}");
}

#[test]
fn program_learns_the_cause_of_a_failure() {
    let dir = Scratch::new("job", "cause");
    let mut words = command(example("job"));
    words.env("RUN_DIR", dir.path("runs"));
    words.args(["sh", "-c", "test $RANK != 2 || exit 7; sleep 1000"]);
    let output = words.output().expect("it starts");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(sorted_lines(&output.stdout), ["rank 2 was the cause"]);
    let screen = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(screen.contains("error[R101]: rank 2 (localhost) exited with code 7"), "{screen}");
}

#[test]
fn program_is_its_own_agent_over_ssh() {
    if !can_run("program_is_its_own_agent_over_ssh") {
        return;
    }
    let (hosts, _) = Cluster::new(&[("n1", 1), ("n2", 2)]);
    let file = hosts.dir().join("hosts");
    fs::write(&file, "n1 slots=1\nn2 slots=2\n").expect("a hostfile");
    let mut words = command(example("job"));
    words.env("HOSTFILE", file).env("SSH_CONFIG", hosts.dir().join("ssh_config"));
    words.env("RUN_DIR", hosts.dir().join("runs")).env("XDG_RUNTIME_DIR", hosts.dir().join("run"));
    words.args(["sh", "-c", "echo $RANK of $WORLD_SIZE"]);
    let output = words.output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = ["n1:0 │ 0 of 3", "n2:1 │ 1 of 3", "n2:2 │ 2 of 3"];
    assert_eq!(sorted_lines(&output.stdout), expected);
    let _ = fs::remove_dir_all(hosts.dir());
}

#[test]
fn program_that_is_missing_starts_nothing() {
    let output = command(example("job")).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let screen = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(screen, "Error: \"usage: job PROGRAM [ARGUMENT…]\"\n");
}

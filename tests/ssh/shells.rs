//! Login shells and what their start-up files do.

use std::fs;
use std::path::Path;

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::proof::has;

/// Runs a job with this login shell, without changing an account: sshd passes the command unchanged.
fn with_shell(shell: &str, test: &str) {
    if !can_run(test) || !has("shells", test) {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure(&format!("ForceCommand exec {shell} -c \"$SSH_ORIGINAL_COMMAND\""));
    let outcome = launch.option("--prefix").option("").sh("echo $RANK").end().code(0);
    let mut ranks: Vec<_> = outcome.stdout_text().lines().collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["0", "1"]);
}

#[test]
fn sh() {
    with_shell("/bin/sh", "sh");
}

#[test]
fn bash() {
    with_shell("bash", "bash");
}

#[test]
fn dash() {
    with_shell("dash", "dash");
}

#[test]
fn zsh() {
    with_shell("zsh", "zsh");
}

#[test]
fn tcsh() {
    with_shell("tcsh", "tcsh");
}

#[test]
fn fish() {
    with_shell("fish", "fish");
}

#[test]
fn start_up_file_may_print() {
    if !can_run("start_up_file_may_print") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let talk = "printf 'Welcome!\\nremuda-link: hello\\nno line end'; echo warning >&2; seq 5000";
    cluster.configure(&format!("ForceCommand {talk}; eval \"$SSH_ORIGINAL_COMMAND\""));
    let outcome = launch.sh("echo of the worker").end().code(0);
    assert_eq!(outcome.stdout_text(), "of the worker\n");
    outcome.does_not_say("warning");
}

#[test]
fn start_up_file_may_be_slow() {
    if !can_run("start_up_file_may_be_slow") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let flag = cluster.dir().join("flag");
    let slow = format!("until [ -e {} ]; do sleep 0.1; done", flag.display());
    cluster.configure(&format!("ForceCommand {slow}; eval \"$SSH_ORIGINAL_COMMAND\""));
    let job = launch.sh("exit 0").start();
    job.wait_for_error("Waiting  for n1, n2");
    std::fs::write(flag, "").expect("a flag");
    job.end().code(0);
    assert_eq!(
        (cluster.connections(0), cluster.connections(1)),
        (1, 1),
        "one connection for each host"
    );
}

#[test]
fn start_up_file_that_prints_without_end_is_an_error() {
    if !can_run("start_up_file_that_prints_without_end_is_an_error") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.configure("ForceCommand yes welcome");
    let outcome = launch.sh("exit 0").end().code(76).says("the agent did not start");
    outcome.says("text without end").says("welcome");
}

#[test]
fn refused_account_is_reported_with_its_output() {
    if !can_run("refused_account_is_reported_with_its_output") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.configure("ForceCommand echo This account is currently not available.; exit 1");
    let outcome = launch.sh("exit 0").end().code(76);
    outcome.says("This account is currently not available.");
}

#[test]
fn home_may_contain_a_blank() {
    if !can_run("home_may_contain_a_blank") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let home = cluster.dir().join("a home");
    fs::create_dir(&home).expect("a directory");
    cluster.set_variable("HOME", &home.display().to_string());
    let outcome = launch.sh("echo \"$HOME\"").end().code(0);
    assert_eq!(Path::new(outcome.stdout_text().trim_end()), home);
}

//! `remuda.launch` of the Python package with hosts: a function runs in workers behind real sshds, whose results and
//! exceptions come back through a directory that all hosts see.

use std::fs;
use std::path::Path;

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::{REMUDA, command};
use crate::support::process::MARK;

/// Calls one function that returns and one that fails, and prints what the caller sees.
const PROGRAM: &str = r#"
import os
import time

import remuda


def place(number):
    return os.environ["RANK"], os.environ["NODE_RANK"], os.environ["WORLD_SIZE"], os.environ["HOME"], number


def fails():
    if os.environ["RANK"] == "2":
        raise LookupError("here")
    time.sleep(1000)


if __name__ == "__main__":
    hosts = {"hosts": ["n1:2", "n2:1"], "accelerator": "cpu", "options": ["--ssh_config", "ssh_config"]}
    for row in remuda.launch(place, args=(7,), **hosts):
        print(*row)
    try:
        remuda.launch(fails, **hosts)
    except remuda.JobFailed as error:
        print(error.rank, repr(error.__cause__), str(error).splitlines()[0])
"#;

#[test]
fn python_function_runs_on_the_hosts() {
    if !can_run("python_function_runs_on_the_hosts") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 1)]);
    let program = cluster.dir().join("program.py");
    fs::write(&program, PROGRAM).expect("a file");
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let mut python = command("python3");
    python.arg("-B").arg(&program).current_dir(cluster.dir()).env("PYTHONPATH", package);
    python.env("REMUDA_EXECUTABLE", REMUDA).env("REMUDA_RUN_DIR", launch.run_dir());
    let output = python.env(MARK, launch.mark()).output().expect("Python starts");
    let home = cluster.home();
    let row = |rank, node| format!("{rank} {node} 3 {} 7\n", home.display());
    let failure = "2 LookupError('here') rank 2 on n2 failed: LookupError: here\n";
    let expected = row(0, 0) + &row(1, 0) + &row(2, 1) + failure;
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    assert_eq!([cluster.connections(0), cluster.connections(1)], [2, 2]);
    let kept = fs::read_dir(cluster.dir()).expect("a directory");
    let names = kept.map(|entry| entry.expect("an entry").file_name().into_string());
    let left: Vec<_> = names.flatten().filter(|name| name.starts_with(".remuda-")).collect();
    assert_eq!(left, [""; 0], "the files of a call are removed");
}

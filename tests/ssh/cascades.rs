//! A failure that spreads over hosts: the first rank that failed is named, from the error file
//! on its own node.

use std::path::{Path, PathBuf};

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::Outcome;
use crate::support::torch::python_with_torch;

const HOSTS: [(&str, usize); 2] = [("n1", 2), ("n2", 1)];

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cascades/scripts").join(name)
}

#[track_caller]
fn check(outcome: Outcome) {
    let title = "error[R101]: rank 2 (n2) failed: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
    let outcome = outcome.code(1).says(title).says(" in fail\n");
    let cause = &outcome.record()["cause"];
    assert_eq!((&cause["rank"], &cause["evidence"]), (&2.into(), &"error_file".into()));
    let file = String::from_utf8(outcome.run_file("rank2.error.json")).expect("text");
    assert!(file.contains("CUDA out of memory"), "{file}");
}

#[test]
fn rank_of_another_host_is_named_by_its_error_file() {
    if !can_run("rank_of_another_host_is_named_by_its_error_file") {
        return;
    }
    let (cluster, launch) = Cluster::new(&HOSTS);
    let flags = cluster.dir().join("flags");
    std::fs::create_dir(&flags).expect("a directory");
    let words = ["python3".into(), script("cascade.py"), "recorded".into(), flags];
    let outcome = launch.program(words).end();
    let outcome = outcome.says("  ranks 0, 1 then lost their connection to it\n");
    check(outcome);
}

#[test]
fn torch_rank_of_another_host_is_named() {
    if !can_run("torch_rank_of_another_host_is_named") {
        return;
    }
    let Some(python) = python_with_torch("torch_rank_of_another_host_is_named") else { return };
    let (_cluster, launch) = Cluster::new(&HOSTS);
    let launch = launch.options(["--env", "GLOO_SOCKET_IFNAME=lo", "--env", "OMP_NUM_THREADS=1"]);
    check(launch.program([python, script("gloo.py"), "slow".into()]).end());
}

//! A failure that spreads over nodes that were started one by one: the first rank that failed is named
//! on every screen.

use std::path::{Path, PathBuf};

use crate::pods::cluster::{Cluster, can_run};
use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, Outcome};
use crate::support::torch::python_with_torch;

const TITLE: &str = "error[R101]: rank 2 (127.0.0.2) failed: RuntimeError: CUDA out of memory. Tried to \
                     allocate 2.00 GiB\n";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cascades/scripts").join(name)
}

/// Both nodes of a job with these words for its workers.
fn two(nodes: &Nodes, words: &[PathBuf]) -> [Outcome; 2] {
    let node = |rank| -> Launch { nodes.node(rank).program(words.iter().cloned()) };
    let node = |rank| node(rank).options(["--env", "GLOO_SOCKET_IFNAME=lo"]);
    let second = node(1).start();
    let first = node(0).end();
    [first, second.end()]
}

#[test]
fn rank_of_another_node_is_named_on_every_screen() {
    let nodes = Nodes::new(&[2, 1]);
    let flags = nodes.dir().join("flags");
    std::fs::create_dir(&flags).expect("a directory");
    let words = ["python3".into(), script("cascade.py"), "recorded".into(), flags];
    let [first, second] = two(&nodes, &words);
    let first = first.code(1).says(TITLE).says("  ranks 0, 1 then lost their connection to it\n");
    assert_eq!(first.record()["cause"]["evidence"], "error_file");
    drop(first.says("  log: /").says("/rank2.stderr\n"));
    drop(second.code(1).says(TITLE).says("  log on node 0: /").says("/rank2.stderr\n"));
}

#[test]
fn rank_of_another_pod_is_named_on_every_screen() {
    if !can_run("rank_of_another_pod_is_named_on_every_screen") {
        return;
    }
    let cluster = Cluster::new(3);
    let flags = cluster.file("flags");
    std::fs::create_dir(&flags).expect("a directory");
    let pods = [0, 1, 2].map(|rank| {
        let words = ["python3".into(), script("cascade.py"), "recorded".into(), flags.clone()];
        cluster.pod(rank, 3).program(words).start()
    });
    for pod in pods {
        let outcome = pod.end().code(1).says("error[R101]: rank 2 (train-2");
        let outcome = outcome
            .says(") failed: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n");
        drop(outcome.says("  ranks 0, 1 then lost their connection to it\n"));
    }
}

#[test]
fn torch_rank_of_another_node_is_named() {
    let Some(python) = python_with_torch("torch_rank_of_another_node_is_named") else { return };
    let nodes = Nodes::new(&[2, 1]);
    let words = [python, script("gloo.py"), "slow".into()];
    let [first, second] = two(&nodes, &words);
    drop(first.code(1).says(TITLE));
    second.code(1).says(TITLE);
}

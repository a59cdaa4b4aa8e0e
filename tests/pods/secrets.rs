//! Pods with different Secrets: both exit with 77, and both screens name the fingerprints to compare.

use std::time::Duration;

use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, Outcome};

/// One of two pods, with this key.
fn pod(nodes: &Nodes, rank: usize, key: &str, limit: Duration) -> Launch {
    let launch = Launch::new().command("pod").options(["--accelerator", "cpu", "--no_python"]);
    let launch = launch.options(["--no_local_rank", "--master_addr=127.0.0.1", "--nodes=2"]);
    let launch = launch.option(format!("--master_port={}", nodes.port));
    let launch = launch.option(format!("--join_timeout={}s", limit.as_secs()));
    let launch = launch.env("JOB_COMPLETION_INDEX", rank.to_string());
    launch.env("REMUDA_KEY_FILE", nodes.dir().join(key)).sh("true")
}

/// Both are given the same time, and the second one starts later.
fn end_of_both(limit: Duration) -> (Nodes, Outcome, Outcome) {
    let nodes = Nodes::new(&[1, 1]);
    nodes.write_key("wrong", b"another secret, as long as the first");
    let first = pod(&nodes, 0, "key", limit).start();
    first.wait_for_error("Waiting  for the other nodes");
    let second = pod(&nodes, 1, "wrong", limit).end();
    (nodes, first.end(), second)
}

/// The text between two markers.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split(before).nth(1).unwrap_or_default();
    rest.split(after).next().unwrap_or_default()
}

#[test]
fn wrong_secret_ends_both_pods_with_77() {
    // A busy machine may start the second pod after the first has timed out; a longer limit follows.
    let tries = [4, 8, 16, 32].map(Duration::from_secs);
    let ends = tries.into_iter().map(end_of_both);
    let is_closed = |(_, _, second): &(Nodes, Outcome, Outcome)| {
        second.stderr.contains("connections without a reply")
    };
    let (nodes, first, second) =
        ends.into_iter().find(is_closed).expect("the second pod was rejected");
    let (first, second) = (first.code(77), second.code(77));
    let own = format!("({})", nodes.dir().join("key").display());
    let first = first.says("error[R107]: 1 of 2 hosts cannot take part; nothing was started\n");
    let first = first
        .says("  has a different key:\n    pod-1: node 1 did not join within ")
        .says(" connections with a different key, from 127.0.0.1")
        .says("; the key of node 0 has the fingerprint ")
        .says(&own)
        .says(
            "  help: give every node the same key file (in pods: the same Secret); each node prints ",
        );
    let second = second
        .says(" connections without a reply: it has a different key; nothing was started\nhelp: ")
        .says("(in pods: the same Secret)");
    let of_first = between(&first.stderr, "the key of node 0 has the fingerprint ", " ");
    let of_second = between(&second.stderr, "this node's key has the fingerprint ", " ");
    assert_eq!((of_first.len(), of_second.len()), (8, 8));
    assert_ne!(of_first, of_second);
    for screen in [&first.stderr, &second.stderr] {
        assert!(!screen.contains("secret of the test") && !screen.contains("another secret"));
    }
}

//! Nodes that are killed and replaced: all nodes take part in the next epoch, exactly once.

use rustix::process::Signal;

use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, Running};
use crate::support::process::Role;

/// Succeeds in the second epoch, and does not end in the first.
const SCRIPT: &str = "echo epoch $TORCHELASTIC_RESTART_COUNT of $RANK; \
                      test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0; exec sleep 600";

/// One of two pods, whose keeper has a restart left.
fn pod(nodes: &Nodes, rank: usize) -> Launch {
    let pod = Launch::new().command("pod").options(["--accelerator", "cpu", "--no_python"]);
    let pod = pod.options(["--no_local_rank", "--master_addr=127.0.0.1", "--nodes=2"]);
    let pod = pod.option(format!("--master_port={}", nodes.port)).option("--max_restarts=1");
    let pod = pod.env("NODE_RANK", rank.to_string());
    pod.env("REMUDA_KEY_FILE", nodes.dir().join("key")).sh(SCRIPT)
}

#[test]
fn evicted_pod_is_replaced_in_the_next_epoch() {
    let nodes = Nodes::new(&[]);
    let [first, second] = [0, 1].map(|rank| pod(&nodes, rank).start());
    first.wait_for_lines("epoch 0", 2);
    second.signal(Signal::TERM);
    let leaving = "   Leaving  this node leaves the job, which continues: SIGTERM received";
    drop(second.end().code(143).says(leaving));
    first.wait_for_error(
        "pod-1 received SIGTERM; attempt 2 (attempt 1 was the first start) starts in ",
    );
    let replaced = pod(&nodes, 1).start();
    let first = first.end().code(0);
    assert_eq!(first.stdout_text().matches("epoch 1").count(), 2, "{first:#?}");
    replaced.end().code(0);
}

#[test]
fn pods_reconnect_after_pod_0_is_evicted() {
    let nodes = Nodes::new(&[]);
    let [first, second] = [0, 1].map(|rank| pod(&nodes, rank).start());
    first.wait_for_lines("epoch 0", 2);
    first.signal(Signal::TERM);
    drop(
        first
            .end()
            .code(143)
            .says("   Leaving  node 0 leaves the job; the other nodes wait up to "),
    );
    second.wait_for_error(
        "Lost  the connection to node 0 closed; \
         reconnecting for attempt 2 (attempt 1 was the first start)",
    );
    let replaced = pod(&nodes, 0).end().code(0);
    assert_eq!(replaced.stdout_text().matches("epoch 1").count(), 2, "{replaced:#?}");
    second.end().code(0);
}

#[test]
fn job_ends_when_all_pods_receive_sigterm() {
    let nodes = Nodes::new(&[]);
    let [first, second] = [0, 1].map(|rank| pod(&nodes, rank).start());
    first.wait_for_lines("epoch 0", 2);
    second.signal(Signal::TERM);
    first.signal(Signal::TERM);
    first.end().code(143);
    second.end().code(143);
}

fn node(nodes: &Nodes, rank: usize) -> Launch {
    nodes.node(rank).option("--max_restarts=1").sh(SCRIPT)
}

/// All nodes, running in the first epoch.
fn begun(nodes: &Nodes) -> (Running, Running) {
    let second = node(nodes, 1).start();
    let first = node(nodes, 0).start();
    first.wait_for_lines("epoch 0", 2);
    (first, second)
}

#[test]
fn replaced_node_takes_part_in_the_next_epoch() {
    let nodes = Nodes::new(&[1, 1]);
    let (first, second) = begun(&nodes);
    second.the(Role::Launcher).signal(Signal::KILL);
    second.end().killed_by(Signal::KILL);
    let replaced = node(&nodes, 1).start();
    let first = first.end().code(0);
    assert_eq!(first.stdout_text().matches("epoch 1").count(), 2, "{first:#?}");
    replaced.end().code(0);
}

#[test]
fn replaced_node_0_continues_at_the_next_epoch() {
    let nodes = Nodes::new(&[1, 1]);
    let (first, second) = begun(&nodes);
    first.the(Role::Launcher).signal(Signal::KILL);
    drop(first.end().killed_by(Signal::KILL));
    second.wait_for_error(
        "      Lost  the connection to node 0 closed; \
         reconnecting for attempt 2 (attempt 1 was the first start) if node 0 is started again within ",
    );
    let replaced = node(&nodes, 0).end().code(0);
    let replaced = replaced.says(
        "  Resuming  at attempt 2 (attempt 1 was the first start), \
         after the attempts under the previous node 0\n",
    );
    assert_eq!(replaced.stdout_text().matches("epoch 1").count(), 2, "{replaced:#?}");
    second.end().code(0);
}

#[test]
fn node_with_a_killed_agent_joins_with_a_new_agent() {
    let nodes = Nodes::new(&[1, 1]);
    let (first, second) = begun(&nodes);
    second.the(Role::Agent).signal(Signal::KILL);
    let first = first.end().code(0);
    assert_eq!(first.stdout_text().matches("epoch 1").count(), 2, "{first:#?}");
    second.end().code(0);
}

#[test]
fn node_without_restarts_left_does_not_wait_for_node_0() {
    let nodes = Nodes::new(&[1, 1]);
    let script = "echo epoch $TORCHELASTIC_RESTART_COUNT; exec sleep 600";
    let launch = |rank| nodes.node(rank).option("--max_restarts=1").sh(script);
    let (second, first) = (launch(1).start(), launch(0).start());
    first.wait_for_lines("epoch 0", 2);
    first.the(Role::Launcher).signal(Signal::KILL);
    drop(first.end());
    let replaced = launch(0).start();
    replaced.wait_for_lines("epoch 1", 2);
    replaced.the(Role::Launcher).signal(Signal::KILL);
    drop(replaced.end());
    second.end().code(75).says("error[R109]: node 0 (127.0.0.1) was lost");
}

/// Three nodes without restarts: the first two have joined, and the third is not started.
fn gathering(nodes: &Nodes, options: &[&str]) -> (Running, Running) {
    let launch = |rank| early(nodes, rank).options(options.iter().copied()).start();
    let (first, second) = (launch(0), launch(1));
    second.wait_for_error("Joined");
    (first, second)
}

fn early(nodes: &Nodes, rank: usize) -> Launch {
    nodes.node(rank).sh("echo begun in $TORCHELASTIC_RESTART_COUNT")
}

const GONE: &str = "      Lost  127.0.0.2 before the job started; waiting up to ";

#[test]
fn node_lost_before_the_start_is_replaced_without_a_restart() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let (first, second) = gathering(&nodes, &[]);
    second.the(Role::Launcher).signal(Signal::KILL);
    drop(second.end());
    first.wait_for_error(GONE);
    let others = [1, 2].map(|rank| early(&nodes, rank).start());
    let first = first.end().code(0);
    assert_eq!(first.stdout_text().matches("begun in 0").count(), 3, "{first:#?}");
    for other in others {
        other.end().code(0);
    }
}

#[test]
fn node_lost_before_the_start_is_named_at_the_deadline() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let (first, second) = gathering(&nodes, &["--join_timeout=8s"]);
    second.the(Role::Launcher).signal(Signal::KILL);
    drop(second.end());
    first.wait_for_error(GONE);
    let third = early(&nodes, 2).start();
    let screen = "\
error[R107]: 1 of 3 hosts did not join; nothing was started
  did not join:
    127.0.0.2: node 1 did not join within 8.0 s (--join_timeout); its first connection was lost
";
    drop(first.end().code(69).says(screen));
    third.end().code(69).says(screen);
}

#[test]
fn nodes_reconnect_if_node_0_is_lost_before_the_start() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let (first, second) = gathering(&nodes, &[]);
    first.the(Role::Launcher).signal(Signal::KILL);
    drop(first.end());
    second.wait_for_error(
        "the connection to node 0 closed; reconnecting for attempt 1 (the first start)",
    );
    let third = early(&nodes, 2).start();
    let first = early(&nodes, 0).end().code(0);
    assert_eq!(first.stdout_text().matches("begun in 0").count(), 3, "{first:#?}");
    second.end().code(0);
    third.end().code(0);
}

#[test]
fn pod_evicted_before_the_start_is_replaced() {
    let nodes = Nodes::new(&[]);
    let launch = |rank| pod(&nodes, rank).option("--nodes=3");
    let [first, second] = [0, 1].map(|rank| launch(rank).option("--max_restarts=0").start());
    second.wait_for_error("Joined");
    second.signal(Signal::TERM);
    drop(second.end().code(143).says("   Leaving  this node leaves the job, which continues"));
    first.wait_for_error("pod-1 before the job started; waiting up to ");
    let others = [1, 2].map(|rank| launch(rank).option("--max_restarts=0").start());
    first.wait_for_lines("epoch 0", 3);
    first.signal(Signal::TERM);
    first.end().code(143);
    for other in others {
        other.end().code(143);
    }
}

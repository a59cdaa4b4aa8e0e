//! Lines of torchrun with a varying number of nodes.

use rustix::process::Signal;

use super::torchrun::{free_port, torchrun};
use crate::support::launch::{Launch, Running};
use crate::support::process::Role;
use crate::support::scratch::Scratch;

/// Nodes of one job, whose workers run until a file exists.
struct Nodes {
    directory: Scratch,
    port: u16,
    /// Values of `--nnodes` and `--max-restarts`.
    size: (&'static str, &'static str),
    conf: &'static str,
}

impl Nodes {
    fn new(name: &str, size: (&'static str, &'static str), conf: &'static str) -> Self {
        let directory = Scratch::new("torchrun", &format!("elastic-{name}"));
        Self { directory, port: free_port(), size, conf }
    }

    fn line(&self, workers: &str) -> Launch {
        let end = self.directory.path("end");
        // Every worker says its place to standard error, where the test waits for it.
        let script = format!(
            "echo \"$RANK of $WORLD_SIZE, group $GROUP_RANK of $GROUP_WORLD_SIZE, attempt \
             $TORCHELASTIC_RESTART_COUNT\" >&2; while [ ! -e {} ]; do sleep 0.05; done",
            end.display()
        );
        let endpoint = format!("127.0.0.1:{}", self.port);
        let options = ["--nnodes", self.size.0, "--max-restarts", self.size.1];
        torchrun(&options, &script).options([
            "--nproc-per-node",
            workers,
            "--rdzv-backend=c10d",
            "--rdzv-endpoint",
            &endpoint,
            "--rdzv-conf",
            self.conf,
        ])
    }

    fn start(&self) -> Running {
        self.line("2").start()
    }

    fn end_workers(&self) {
        self.directory.write("end", "");
    }
}

/// Waits until all workers of an attempt on so many nodes have said their places.
#[track_caller]
fn wait_for_attempt(first: &Running, attempt: u32, nodes: u32) {
    for rank in 0..2 * nodes {
        let group = rank / 2;
        let world = 2 * nodes;
        first.wait_for_error(&format!(
            "{rank} of {world}, group {group} of {nodes}, attempt {attempt}\n"
        ));
    }
}

#[test]
fn node_that_is_killed_and_put_back_changes_the_ranks() {
    let nodes = Nodes::new("killed", ("2:3", "1"), "last_call_timeout=0");
    let first = nodes.start();
    first.wait_for_error("Waiting");
    let second = nodes.start();
    wait_for_attempt(&first, 0, 2);
    let third = nodes.start();
    wait_for_attempt(&first, 1, 3);
    second.signal(Signal::KILL);
    wait_for_attempt(&first, 2, 2);
    let fourth = nodes.start();
    wait_for_attempt(&first, 3, 3);
    nodes.end_workers();
    first
        .end()
        .code(0)
        .says("Launch  2 workers on this node, one of 2 to 3 nodes")
        .says("Nodes  4 workers on 2 nodes: node-0, node-1 (minimum 2, maximum 3); more nodes may join")
        .says("Stopping  4 workers: a node has joined")
        .says("Restart  a node has joined; attempt 2 starts with it")
        .says("Restart  node node-1 was lost: the connection to its remuda process closed; restart 1 of 1\n")
        .says("attempt 4 starts with it")
        .says("Finished  6 workers in")
        .says(", after 1 restart and 2 membership changes\n");
    third.end().code(0);
    fourth.end().code(0);
    second.end().killed_by(Signal::KILL);
}

#[test]
fn node_that_leaves_does_not_cost_a_restart() {
    let nodes = Nodes::new("leaves", ("1:2", "0"), "last_call_timeout=60");
    let first = nodes.start();
    first.wait_for_error("Waiting");
    let second = nodes.start();
    wait_for_attempt(&first, 0, 2);
    second.signal(Signal::TERM);
    wait_for_attempt(&first, 1, 1);
    nodes.end_workers();
    let outcome = first.end().code(0);
    outcome
        .says("Restart  node-1 received SIGTERM; attempt 2")
        .says(", after 1 membership change\n");
    second.end().code(143).says("Leaving  this node leaves the job, which continues");
}

#[test]
fn newcomers_can_wait_for_the_next_start() {
    let nodes = Nodes::new("newcomer", ("1:3", "1"), "last_call_timeout=0,newcomers=at_restart");
    let first = nodes.start();
    wait_for_attempt(&first, 0, 1);
    let second = nodes.start();
    second.wait_for_error("Joined");
    first.wait_for_role(Role::Worker, 2)[1].signal(Signal::KILL);
    wait_for_attempt(&first, 1, 2);
    nodes.end_workers();
    first.end().code(0).does_not_say("a node has joined");
    second.end().code(0);
}

#[test]
fn too_few_nodes_start_nothing() {
    let nodes = Nodes::new("few", ("2:4", "0"), "join_timeout=1");
    let outcome = nodes.line("1").end().code(69);
    let text = outcome.screen();
    let (_, report) = text.split_once("error").expect("an error");
    assert_eq!(
        format!("error{report}"),
        "error[R107]: 1 of 2 hosts did not join; nothing was started\n  did not join:\n    node-1: node \
         1 did not join within 1.0 s (--rdzv-conf join_timeout=SECONDS)\n  help: start every node with the same command line; \
         only the number of the node differs, where the line has one\n"
    );
}

#[test]
fn job_without_enough_nodes_ends_with_the_loss() {
    let nodes = Nodes::new("below", ("2:3", "5"), "last_call_timeout=0,join_timeout=1");
    let first = nodes.start();
    first.wait_for_error("Waiting");
    let second = nodes.start();
    wait_for_attempt(&first, 0, 2);
    second.signal(Signal::KILL);
    let outcome = first.end().code(75);
    outcome
        .says("did not join within 1.0 s")
        .says("node node-1 was lost: the connection to its remuda process closed");
    second.end().killed_by(Signal::KILL);
}

#[test]
fn node_with_another_command_line_is_named_and_rejected() {
    let nodes = Nodes::new("other", ("1:2", "0"), "last_call_timeout=0");
    let first = nodes.start();
    wait_for_attempt(&first, 0, 1);
    nodes
        .line("2")
        .option("--nnodes=1:3")
        .end()
        .code(78)
        .says("was started with another line than node 0");
    first.wait_for_error("warning: node-1 cannot join: its line differs");
    // Its number is free again.
    let second = nodes.start();
    wait_for_attempt(&first, 1, 2);
    nodes.end_workers();
    first.end().code(0);
    second.end().code(0);
}

#[test]
fn nodes_say_how_long_they_wait_for_a_lost_node_0() {
    let nodes = Nodes::new("first", ("2:3", "1"), "last_call_timeout=0");
    let first = nodes.start();
    first.wait_for_error("Waiting");
    let second = nodes.start();
    wait_for_attempt(&first, 0, 2);
    first.signal(Signal::KILL);
    second.wait_for_error(
        "      Lost  the connection to node 0 closed; reconnecting for attempt 2 (attempt 1 was the first start) if \
         node 0 is started again within 60 s (--rdzv-conf join_timeout=SECONDS)\n",
    );
    second.signal(Signal::INT);
    second.end().code(130);
    first.end().killed_by(Signal::KILL);
}

#[test]
fn nodes_end_if_a_lost_node_0_stays_away() {
    let nodes = Nodes::new("away", ("2:3", "1"), "last_call_timeout=0,join_timeout=5");
    let first = nodes.start();
    first.wait_for_error("Waiting");
    let second = nodes.start();
    wait_for_attempt(&first, 0, 2);
    first.signal(Signal::KILL);
    let lost = format!(
        "error[R108]: node 0 (127.0.0.1:{}) was lost, and did not answer within 5.0 s ",
        nodes.port
    );
    second.end().code(75).says(&lost).says("; there was no restart\n");
    first.end().killed_by(Signal::KILL);
}

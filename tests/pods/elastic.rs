//! Jobs that continue without some of their nodes, which join by themselves.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, Outcome, Running};
use crate::support::process::Role;
use crate::support::varying_nodes::{members, wait_for_workers, worker_until};

/// A job on up to three nodes with one worker each.
struct Job {
    nodes: Nodes,
    options: Vec<String>,
}

impl Job {
    fn new(options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Self { nodes: Nodes::new(&[1, 1, 1]), options }
    }

    /// The workers end with 0 when this file exists.
    fn end_file(&self) -> PathBuf {
        self.nodes.dir().join("end")
    }

    /// A node whose worker prints its rank and the attempt, and waits.
    fn start(&self, node: usize) -> Running {
        self.start_worker(self.nodes.node(node).options(self.options.iter()))
    }

    fn start_worker(&self, launch: Launch) -> Running {
        launch.options(["--grace", "2s"]).sh(&worker_until(&self.end_file())).start()
    }

    /// All workers end with 0; node 0 and the others exit.
    fn end<const N: usize>(&self, first: Running, others: [Running; N]) -> Outcome {
        fs::write(self.end_file(), "").expect("a file");
        let outcome = first.end().code(0);
        for other in others {
            other.end().code(0);
        }
        outcome
    }
}

/// The process of a node is killed.
fn lose(node: Running) {
    node.the(Role::Launcher).signal(Signal::KILL);
    drop(node.end());
}

#[test]
fn absent_node_joins_a_job_that_runs_without_it() {
    let job = Job::new(&["--min_nodes=2", "--last_call=1s"]);
    let (first, second) = (job.start(0), job.start(1));
    wait_for_workers(&first, 0, 2);
    let third = job.start(2);
    wait_for_workers(&first, 1, 3);
    let outcome = job.end(first, [second, third]);
    let expected = [
        "     Nodes  2 workers on 2 nodes (minimum 2, maximum 3); more nodes may join",
        "     Nodes  3 workers on 3 nodes (minimum 2, maximum 3)",
    ];
    assert_eq!(members(&outcome), expected);
}

#[test]
fn lost_node_is_done_without_until_it_is_back() {
    let job = Job::new(&["--min_nodes=2", "--last_call=1s"]);
    let [first, second, third] = [0, 1, 2].map(|node| job.start(node));
    wait_for_workers(&first, 0, 3);
    lose(second);
    wait_for_workers(&first, 1, 2);
    let second = job.start(1);
    wait_for_workers(&first, 2, 3);
    let outcome = job.end(first, [second, third]);
    let expected = [
        "     Nodes  3 workers on 3 nodes (minimum 2, maximum 3)",
        "     Nodes  2 workers on 2 nodes (minimum 2, maximum 3); more nodes may join",
        "     Nodes  3 workers on 3 nodes (minimum 2, maximum 3)",
    ];
    assert_eq!(members(&outcome), expected);
}

#[test]
fn node_that_is_asked_to_end_leaves_the_job() {
    let job = Job::new(&["--min_nodes=2", "--last_call=1s"]);
    let [first, second, third] = [0, 1, 2].map(|node| job.start(node));
    wait_for_workers(&first, 0, 3);
    third.signal(Signal::TERM);
    let left = third.end().code(143);
    drop(left.says("   Leaving  this node leaves the job, which continues: SIGTERM received"));
    wait_for_workers(&first, 1, 2);
    let outcome = job.end(first, [second]);
    assert_eq!(members(&outcome).len(), 2, "{outcome:#?}");
}

#[test]
fn spare_pod_takes_the_place_of_a_lost_one() {
    let job = Job::new(&[]);
    let pod = |rank: usize| {
        let launch = Launch::new().command("pod").options(["--accelerator=cpu", "--no_python"]);
        let launch = launch.options(["--no_local_rank", "--master_addr=127.0.0.1", "--nodes=3"]);
        let launch = launch.option(format!("--master_port={}", job.nodes.port));
        let launch = launch.env("REMUDA_KEY_FILE", job.nodes.dir().join("key"));
        let launch = launch.env("JOB_COMPLETION_INDEX", rank.to_string());
        job.start_worker(launch.env("REMUDA_SPARES", "1").env("REMUDA_LAST_CALL", "1s"))
    };
    let [first, second, third] = [0, 1, 2].map(pod);
    wait_for_workers(&first, 0, 2);
    lose(second);
    wait_for_workers(&first, 1, 2);
    let outcome = job.end(first, [third]).says("2 workers on 2 nodes and 1 spare");
    let expected = [
        "     Nodes  2 workers on 2 nodes; 1 spare node ready",
        "     Nodes  2 workers on 2 nodes",
    ];
    assert_eq!(members(&outcome), expected);
}

#[test]
fn job_waits_while_too_few_nodes_are_left() {
    let job = Job::new(&["--min_nodes=2", "--last_call=1s"]);
    let (first, second) = (job.start(0), job.start(1));
    wait_for_workers(&first, 0, 2);
    lose(second);
    first.wait_for_error("Waiting");
    let third = job.start(2);
    wait_for_workers(&first, 1, 2);
    job.end(first, [third]);
}

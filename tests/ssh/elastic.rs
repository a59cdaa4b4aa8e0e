//! Jobs that continue without some of their hosts.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::faces::torchrun::free_port;
use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::{Launch, Outcome, Running};
use crate::support::varying_nodes::{members, wait_for_workers, worker_until};

/// Number of connections that are refused before a host is there again: more than any test makes.
const GONE: usize = 1 << 20;

struct Job {
    hosts: Cluster,
    running: Running,
    end: PathBuf,
}

/// One worker on each of three hosts; those that are listed cannot be reached.
fn start(options: &[&str], gone: &[usize]) -> Job {
    let (hosts, launch) = Cluster::new(&[("n1", 1), ("n2", 1), ("n3", 1)]);
    for host in gone {
        hosts.drop_connections(*host, GONE);
    }
    let end = hosts.dir().join("end");
    let launch = launch.options(["--grace", "2s"]).options(options.iter().copied());
    Job { hosts, running: launch.sh(&worker_until(&end)).start(), end }
}

impl Job {
    fn wait_for_workers(&self, attempt: usize, count: usize) {
        wait_for_workers(&self.running, attempt, count);
    }

    fn lose(&self, host: usize) {
        lose(&self.hosts, &self.running, host);
    }

    /// All workers end with 0.
    fn end(self) -> Outcome {
        fs::write(&self.end, "").expect("a file");
        self.running.end().code(0)
    }
}

/// A host can no longer be reached, and its agent ends.
fn lose(hosts: &Cluster, running: &Running, host: usize) {
    hosts.drop_connections(host, GONE);
    let is_agent = |command: &str| command.contains(&format!("node={host} "));
    let mut processes = running.processes();
    processes.retain(|one| one.name == "remuda-agent" && is_agent(&one.command));
    processes.first().expect("it has an agent").signal(Signal::KILL);
}

#[test]
fn host_that_cannot_be_reached_joins_later() {
    if !can_run("host_that_cannot_be_reached_joins_later") {
        return;
    }
    let job = start(&["--min_nodes", "2"], &[1]);
    job.wait_for_workers(0, 2);
    job.hosts.drop_connections(1, 0);
    job.wait_for_workers(1, 3);
    let outcome = job
        .end()
        .says("warning: the job runs without n2; remuda will connect to it again. Cause: ");
    let expected = [
        "     Nodes  2 workers on 2 nodes (minimum 2, maximum 3); more nodes may join",
        "     Nodes  3 workers on 3 nodes (minimum 2, maximum 3)",
    ];
    assert_eq!(members(&outcome), expected);
}

#[test]
fn job_goes_on_without_the_first_host() {
    if !can_run("job_goes_on_without_the_first_host") {
        return;
    }
    // The hosts are one machine, on which one of them has the port.
    let port = free_port().to_string();
    let job = start(&["--min_nodes", "2", "--master_port", &port], &[]);
    job.wait_for_workers(0, 3);
    job.lose(0);
    job.wait_for_workers(1, 2);
    job.hosts.drop_connections(0, 0);
    job.wait_for_workers(2, 3);
    let outcome = job.end();
    let output = outcome.stdout_text();
    assert!(output.contains("n2:0 │ attempt=1 rank=0/2"), "rank 0 is on n2: {output}");
    let expected = [
        "     Nodes  3 workers on 3 nodes (minimum 2, maximum 3)",
        "     Nodes  2 workers on 2 nodes (minimum 2, maximum 3); more nodes may join",
        "     Nodes  3 workers on 3 nodes (minimum 2, maximum 3)",
    ];
    assert_eq!(members(&outcome), expected);
}

#[test]
fn spare_host_takes_the_place_of_a_lost_one() {
    if !can_run("spare_host_takes_the_place_of_a_lost_one") {
        return;
    }
    let job = start(&["--spares", "1"], &[]);
    job.wait_for_workers(0, 2);
    job.lose(1);
    job.wait_for_workers(1, 2);
    let expected = [
        "     Nodes  2 workers on 2 nodes; 1 spare node ready",
        "     Nodes  2 workers on 2 nodes",
    ];
    let outcome = job.end().says("2 workers on 2 nodes and 1 spare");
    assert_eq!(members(&outcome), expected);
}

#[test]
fn too_few_hosts_within_reach_start_nothing() {
    if !can_run("too_few_hosts_within_reach_start_nothing") {
        return;
    }
    // The words of ssh depend on how far a login has come, and hosts with the same ones are one line.
    for (min, gone, hosts) in [("3", &[2][..], "    n3: "), ("2", &[0, 1, 2], "    n")] {
        let job = start(&["--min_nodes", min], gone);
        let outcome = job.running.end().code(69);
        let count = gone.len();
        let error =
            format!("error[R107]: {count} of 3 hosts cannot be reached; nothing was started\n");
        let outcome = outcome.says(&error).says(hosts);
        assert!(outcome.stdout.is_empty(), "{outcome:#?}");
    }
}

#[test]
fn training_begins_with_as_many_hosts_as_share_the_lanes() {
    if !can_run("training_begins_with_as_many_hosts_as_share_the_lanes") {
        return;
    }
    let hosts = Training::new();
    let running = hosts.start(&["--min_nodes", "1", "--lanes", "4"]);
    running.wait_for_lines("is saved in", 3);
    lose(&hosts.cluster, &running, 0);
    let outcome = running.end().code(0);
    let expected = [
        "     Nodes  2 workers on 2 nodes (minimum 1, maximum 3); 1 node has no workers (--lanes 4)",
        "     Nodes  2 workers on 2 nodes (minimum 1, maximum 3); more nodes may join",
    ];
    assert_eq!(members(&outcome), expected);
    hosts.assert_same_bits_on_one_worker("4");
}

/// Digest of parameters and moments in the last record of a training.
fn digest(metrics: &Path) -> String {
    let text = fs::read_to_string(metrics).expect("metrics");
    let last = text.lines().next_back().expect("a record");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
    last["digest"].as_str().expect("a digest").to_owned()
}

#[test]
fn training_that_loses_a_host_has_the_same_bits() {
    if !can_run("training_that_loses_a_host_has_the_same_bits") {
        return;
    }
    let hosts = Training::new();
    let running = hosts.start(&["--min_nodes", "1", "--accumulate", "2"]);
    running.wait_for_lines("is saved in", 3);
    lose(&hosts.cluster, &running, 0);
    let outcome = running.end().code(0);
    let expected = [
        "     Nodes  3 workers on 3 nodes (minimum 1, maximum 3)",
        "     Nodes  2 workers on 2 nodes (minimum 1, maximum 3); more nodes may join",
    ];
    assert_eq!(members(&outcome), expected);
    hosts.assert_same_bits_on_one_worker("6");
}

#[test]
fn training_counts_no_lanes_for_a_spare_host() {
    if !can_run("training_counts_no_lanes_for_a_spare_host") {
        return;
    }
    let hosts = Training::new();
    let running = hosts.start(&["--spares", "1"]);
    running.wait_for_lines("is saved in", 3);
    lose(&hosts.cluster, &running, 0);
    let outcome = running.end().code(0);
    let expected = [
        "     Nodes  2 workers on 2 nodes; 1 spare node ready",
        "     Nodes  2 workers on 2 nodes",
    ];
    assert_eq!(members(&outcome), expected);
    hosts.assert_same_bits_on_one_worker("2");
}

/// Hosts of small trainings, with one worker each.
struct Training {
    cluster: Cluster,
    launch: Launch,
}

impl Training {
    const HOSTS: [(&str, usize); 3] = [("n1", 1), ("n2", 1), ("n3", 1)];

    fn new() -> Self {
        let (cluster, launch) = Cluster::new(&Self::HOSTS);
        Self { cluster, launch }
    }

    fn train(&self, metrics: &Path) -> Launch {
        let small = ["--layers", "1", "--heads", "2", "--width", "16", "--block", "8"];
        let train = self.launch.another().command("train").options(small);
        train.options(["--steps", "400", "--eval_every", "0"]).option("--metrics").option(metrics)
    }

    /// Where the records of the training on all hosts are.
    fn metrics(&self) -> PathBuf {
        self.cluster.dir().join("on_all_hosts")
    }

    fn start(&self, options: &[&str]) -> Running {
        let train = self.train(&self.metrics()).on(&Self::HOSTS).option("--ssh_config");
        let train = train.option(self.cluster.dir().join("ssh_config"));
        let train = train.option("--checkpoint_dir").option(self.cluster.dir().join("kept"));
        let train = train.options(["--save_every", "1", "--keep", "2", "--grace", "2s"]);
        train.options(options.iter().copied()).start()
    }

    /// The same training on one worker of this machine gives the same parameters.
    fn assert_same_bits_on_one_worker(&self, lanes: &str) {
        let alone = self.cluster.dir().join("alone");
        let train = self.train(&alone).options(["-n", "1", "--lanes", lanes]);
        let outcome = train.start().end().code(0);
        assert_eq!(digest(&self.metrics()), digest(&alone));
        let _ = fs::remove_dir_all(outcome.dir());
    }
}

//! Killed processes: all other nodes end, and every screen shows why.

use rustix::process::Signal;

use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, Running};
use crate::support::process::Role;

/// Two nodes whose workers run until they are stopped.
fn two() -> (Nodes, Running, Running) {
    let nodes = Nodes::new(&[1, 2]);
    let second = nodes.node(1).sh("sleep 600").start();
    let first = nodes.node(0).sh("sleep 600").start();
    first.wait_for_role(Role::Worker, 1);
    second.wait_for_role(Role::Worker, 2);
    (nodes, first, second)
}

#[test]
fn failed_worker_stops_all_nodes_and_is_named_on_each() {
    let nodes = Nodes::new(&[1, 2]);
    let script = "if [ $RANK = 2 ]; then echo it broke >&2; exit 7; fi; sleep 600";
    let second = nodes.node(1).sh(script).start();
    let first = nodes.node(0).sh(script).end().code(7);
    let cause = "error[R101]: rank 2 (127.0.0.2) exited with code 7 after ";
    drop(first.says(cause).says("    | it broke\n"));
    second.end().code(7).says(cause).says("    | it broke\n");
}

#[test]
fn signal_to_any_node_stops_the_whole_job() {
    let (_nodes, first, second) = two();
    second.signal(Signal::TERM);
    let second = second.end().code(143).says("  Stopping  SIGTERM received");
    drop(second.says("error[R106]: the job was stopped by SIGTERM"));
    first.end().code(143).says("    Signal  127.0.0.2 received SIGTERM\n");
}

#[test]
fn signal_for_workers_reaches_every_node() {
    let nodes = Nodes::new(&[1, 1]);
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let second = nodes.node(1).sh(script).start();
    let first = nodes.node(0).sh(script).start();
    first.wait_for_lines("ready", 2);
    second.signal(Signal::USR1);
    let first = first.end().code(0);
    assert_eq!(first.stdout_text().matches("got it").count(), 2);
    second.end().code(0);
}

#[test]
fn killed_node_0_ends_the_other_nodes() {
    let (_nodes, first, second) = two();
    first.the(Role::Launcher).signal(Signal::KILL);
    let second = second.end().code(75);
    second.says(
        "error[R109]: node 0 (127.0.0.1) was lost; the workers of this node were stopped\n  the connection to \
         127.0.0.1:",
    );
    first.end().killed_by(Signal::KILL);
}

#[test]
fn killed_node_process_ends_the_job() {
    let (_nodes, first, second) = two();
    second.the(Role::Launcher).signal(Signal::KILL);
    first
        .end()
        .code(75)
        .says("error[R103]: node 127.0.0.2 was lost: the connection to its remuda process closed");
    second.end().killed_by(Signal::KILL);
}

#[test]
fn lost_pod_has_a_help_with_kubectl() {
    let nodes = Nodes::new(&[1, 1]);
    let pod = |rank: usize| {
        let launch = Launch::new().command("pod").options(["--accelerator", "cpu", "--no_python"]);
        let launch = launch.options(["--no_local_rank", "--master_addr=127.0.0.1", "--nodes=2"]);
        let launch = launch.option(format!("--master_port={}", nodes.port));
        let launch = launch.env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        let launch = launch.env("JOB_COMPLETION_INDEX", rank.to_string());
        launch.env("REMUDA_KEY_FILE", nodes.dir().join("key")).sh("sleep 600").start()
    };
    let (second, first) = (pod(1), pod(0));
    second.wait_for_role(Role::Worker, 1);
    first.wait_for_role(Role::Worker, 1);
    second.the(Role::Launcher).signal(Signal::KILL);
    let first = first
        .end()
        .code(75)
        .says("error[R103]: node pod-1 was lost: the connection to its remuda process closed");
    drop(first.does_not_say("uptime").says(
        "help: `kubectl get pods` lists pod-1; `kubectl describe pod NAME` and `kubectl logs NAME \
         --previous` show why it exited; `OOMKilled` means its memory limit\n",
    ));
    second.end().killed_by(Signal::KILL);
}

#[test]
fn killed_agent_is_named_with_its_signal_on_every_screen() {
    let (_nodes, first, second) = two();
    second.the(Role::Agent).signal(Signal::KILL);
    let cause =
        "error[R103]: node 127.0.0.2 was lost: its remuda process was killed by signal 9 (SIGKILL)";
    drop(first.end().code(75).says(cause));
    second.end().code(75).says(cause);
}

#[test]
fn suspended_process_loses_its_node_after_the_lease() {
    let nodes = Nodes::new(&[1, 1]);
    let second = nodes.node(1).option("--lease=10s").sh("sleep 600").start();
    let first = nodes.node(0).option("--lease=10s").sh("sleep 600").start();
    second.wait_for_role(Role::Worker, 1);
    first.wait_for_role(Role::Worker, 1);
    second.the(Role::Launcher).signal(Signal::STOP);
    first.end().code(75).says("no heartbeat from it for 10 s (--lease)");
    // The agent has a lease of its own, so it ends too.
    second.the(Role::Launcher).signal(Signal::CONT);
    second.end().code(75);
}

#[test]
fn failed_job_restarts_over_the_same_connections() {
    let nodes = Nodes::new(&[1, 1]);
    let script = "echo epoch $TORCHELASTIC_RESTART_COUNT; test $TORCHELASTIC_RESTART_COUNT = 1";
    let node = |rank| nodes.node(rank).option("--max_restarts=1").sh(script);
    let second = node(1).start();
    let first = node(0).end().code(0);
    let text = first.stdout_text();
    assert_eq!(text.matches("epoch 1").count(), 2, "{text}");
    second.end().code(0);
}

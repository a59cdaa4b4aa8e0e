//! The lifetime of a pod: names that resolve late, a node 0 that is not replaced, and orphans that
//! process 1 inherits.

use std::fs;

use rustix::process::Signal;

use crate::pods::cluster::{Cluster, can_run, init, kill};
use crate::support::launch::command;
use crate::support::wait_for;

#[test]
fn pods_wait_for_names_that_do_not_resolve_yet() {
    if !can_run("pods_wait_for_names_that_do_not_resolve_yet") {
        return;
    }
    let cluster = Cluster::new(2);
    cluster.publish(0);
    let [first, second] = [0, 1].map(|rank| cluster.pod(rank, 2).sh("echo $RANK").start());
    first.wait_for_error("   Waiting  for the name of this node to resolve, 1");
    first.wait_for_error(": the name `train-0.train` does not resolve: ");
    second.wait_for_error("   Waiting  for node 0 (train-0.train:29501), 1");
    // The name still has the address of the pod that this one replaces.
    fs::write(cluster.file("hosts"), "10.77.0.99 train-0.train\n").expect("a file");
    first.wait_for_error(": `train-0.train` is not an address of this node");
    cluster.publish(2);
    let first = first.end().code(0);
    assert_eq!(first.stdout_text().lines().count(), 2, "{first:#?}");
    second.end().code(0);
}

#[test]
fn pod_waits_for_node_0_until_join_timeout() {
    if !can_run("pod_waits_for_node_0_until_join_timeout") {
        return;
    }
    let cluster = Cluster::new(2);
    let pod = |rank| {
        let pod = cluster.pod(rank, 2).options(["--max_restarts=3", "--join_timeout=12s"]);
        pod.sh("echo up; sleep 1000").start()
    };
    let [first, second] = [0, 1].map(pod);
    first.wait_for_lines("up", 2);
    kill(first);
    second.wait_for_error(
        "Lost  the connection to node 0 closed; \
         reconnecting for attempt 2 (attempt 1 was the first start)",
    );
    second.wait_for_error("   Waiting  for node 0 (train-0.train:29501), 1");
    second.end().code(75).says(
        "error[R108]: node 0 (train-0.train:29501) was lost, and did not answer within 12 s (--join_timeout): \
         connection refused; there was no restart\nhelp: the screen of node 0 shows why it exited\n",
    );
}

#[test]
fn pod_signal_is_forwarded_and_escalated() {
    if !can_run("pod_signal_is_forwarded_and_escalated") {
        return;
    }
    let cluster = Cluster::new(2);
    let script = "trap 'echo got usr1' USR1; trap 'echo got usr2' USR2; trap '' TERM; echo up; \
                  while :; do sleep 0.05; done";
    let [first, second] = [0, 1].map(|rank| cluster.pod(rank, 2).sh(script).start());
    first.wait_for_lines("up", 2);
    init(&second).signal(Signal::USR1);
    first.wait_for_lines("got usr1", 2);
    init(&first).signal(Signal::USR2);
    first.wait_for_lines("got usr2", 2);
    init(&second).signal(Signal::TERM);
    first.end().code(143);
    second.end().code(143);
}

#[test]
fn process_1_reaps_a_thousand_orphans() {
    if !can_run("process_1_reaps_a_thousand_orphans") {
        return;
    }
    let cluster = Cluster::new(2);
    let [first, second] = [0, 1].map(|rank| cluster.pod(rank, 2).sh("echo up; sleep 1000").start());
    first.wait_for_lines("up", 2);
    for pod in [&first, &second] {
        let process_1 = init(pod).pid;
        // A shell enters the pod, as `kubectl exec` does, and leaves a thousand orphans.
        let mut shell = command("nsenter");
        shell.args(["--target", &process_1.to_string(), "--pid", "sh", "-c"]);
        shell.arg("i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done");
        assert!(shell.status().expect("nsenter is there").success());
        let dead = || {
            let children = format!("/proc/{process_1}/task/{process_1}/children");
            let children = fs::read_to_string(children).expect("it lives");
            let is_dead = |pid: &&str| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.contains(") Z ")
            };
            children.split_whitespace().filter(is_dead).count()
        };
        wait_for("the orphans to be reaped", || (dead() == 0).then_some(()));
    }
    init(&first).signal(Signal::TERM);
    first.end().code(143);
    second.end().code(143);
}

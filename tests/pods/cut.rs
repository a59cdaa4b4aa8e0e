//! Links between pods that are cut, for good or for a while, slow ones, and ones that lose packets.

use crate::pods::cluster::{Cluster, can_run};
use crate::support::launch::{Outcome, REMUDA, Running};
use crate::support::net::Network;
use crate::support::proof::has;

/// Three pods with a worker each, all of which run until they are stopped; in the order of the pods.
fn start(options: &[&str]) -> (Cluster, [Running; 3]) {
    let cluster = Cluster::new(3);
    let script = "echo rank $RANK in epoch $TORCHELASTIC_RESTART_COUNT; \
                  [ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 1000; exit 0";
    let pods = [0, 1, 2].map(|rank| {
        let pod = cluster.pod(rank, 3).options(["--lease", "10s"]);
        pod.options(options.iter().copied()).sh(script).start()
    });
    pods[0].wait_for_lines("in epoch 0", 3);
    (cluster, pods)
}

const LOST: &str = "no heartbeat from it for 10 s (--lease)";
const LEADER_LOST: &str =
    "error[R109]: node 0 (train-0) was lost; the workers of this node were stopped";

/// Cuts off the last pod: the others name it, it names node 0, and nothing of the job is left on
/// either side of a link that stays cut.
#[track_caller]
fn check_lost(cut: impl FnOnce(&Network)) {
    let (cluster, [first, second, third]) = start(&[]);
    cut(&cluster.network);
    let outcome = first.end().code(75).says(LOST);
    assert_eq!(outcome.record()["cause"]["host"], "train-2");
    second.end().code(75).says(LOST);
    third.end().code(75).says(LEADER_LOST);
}

#[test]
fn disconnected_pod_is_lost_at_both_ends() {
    if can_run("disconnected_pod_is_lost_at_both_ends (pods)") {
        check_lost(|network| network.disconnect(2));
    }
}

#[test]
fn pod_that_cannot_send_is_lost_and_exits() {
    if can_run("pod_that_cannot_send_is_lost_and_exits") {
        check_lost(|network| network.drop_packets_between(2, 0));
    }
}

#[test]
fn pod_that_cannot_receive_is_lost_and_exits() {
    if can_run("pod_that_cannot_receive_is_lost_and_exits") {
        check_lost(|network| network.drop_packets_between(0, 2));
    }
}

#[test]
fn disconnected_pod_0_ends_the_job_on_all_pods() {
    if !can_run("disconnected_pod_0_ends_the_job_on_all_pods") {
        return;
    }
    let (cluster, [first, second, third]) = start(&[]);
    cluster.network.disconnect(0);
    second.end().code(75).says(LEADER_LOST);
    third.end().code(75).says(LEADER_LOST);
    let outcome = first.end().code(75);
    // The kernel can report that there is no route before the lease expires.
    let losses = ["received no heartbeat from it", "the connection to its remuda process "];
    assert!(losses.iter().any(|loss| outcome.stderr.contains(loss)), "{outcome:#?}");
}

#[test]
fn link_restored_within_the_lease_loses_no_line() {
    if !can_run("link_restored_within_the_lease_loses_no_line (pods)") {
        return;
    }
    let cluster = Cluster::new(2);
    let done = cluster.file("done");
    let script =
        "echo up; until [ -e $DONE ]; do echo $((i = i + 1)); sleep 0.1; done; echo end $i";
    let [first, second] = [0, 1].map(|rank| {
        let done = format!("DONE={}", done.display());
        cluster.pod(rank, 2).option("--env").option(done).sh(script).start()
    });
    first.wait_for_lines("up", 2);
    cluster.network.disconnect(1);
    first.wait_for_error("train-1: no heartbeat for 1");
    cluster.network.reconnect(1);
    std::fs::write(&done, "").expect("written");
    let outcome = first.end().code(0);
    let lines: Vec<_> =
        outcome.stdout_text().lines().filter(|line| line.starts_with("train-1:")).collect();
    let last = lines.last().and_then(|line| line.rsplit(' ').next()).expect("a number");
    let last: usize = last.parse().expect("a number");
    assert_eq!(lines.len(), last + 2, "a line was lost: {lines:#?}");
    second.end().code(0);
}

#[track_caller]
fn epoch_1_of(outcome: &Outcome) -> usize {
    outcome.stdout_text().lines().filter(|line| line.contains("in epoch 1")).count()
}

#[test]
fn reconnected_pod_takes_part_in_the_restart() {
    if !can_run("reconnected_pod_takes_part_in_the_restart") {
        return;
    }
    let (cluster, [first, second, third]) = start(&["--max_restarts", "1"]);
    cluster.network.disconnect(2);
    first.wait_for_error("no heartbeat from it for 10 s (--lease); restart 1 of 1");
    third.wait_for_error(
        "Lost  the connection to node 0 closed; \
         reconnecting for attempt 2 (attempt 1 was the first start)",
    );
    cluster.network.reconnect(2);
    let outcome = first.end().code(0);
    assert_eq!(epoch_1_of(&outcome), 3, "{outcome:#?}");
    assert_eq!(outcome.record()["epochs"][0]["cause"]["host"], "train-2");
    second.end().code(0);
    third.end().code(0);
}

#[test]
fn pod_disconnected_before_the_start_joins_again() {
    if !can_run("pod_disconnected_before_the_start_joins_again") {
        return;
    }
    let cluster = Cluster::new(3);
    let launch = |rank| cluster.pod(rank, 3).options(["--lease", "10s"]).sh("echo begun").start();
    let [first, second] = [0, 1].map(launch);
    second.wait_for_error("Joined");
    cluster.network.disconnect(1);
    first.wait_for_error("Lost  train-1 before the job started");
    second.wait_for_error(
        "Lost  the connection to node 0 closed; reconnecting for attempt 1 (the first start)",
    );
    cluster.network.reconnect(1);
    let third = launch(2);
    let outcome = first.end().code(0);
    assert_eq!(outcome.stdout_text().matches("begun").count(), 3, "{outcome:#?}");
    second.end().code(0);
    third.end().code(0);
}

#[test]
fn restart_fails_if_the_pod_stays_disconnected() {
    if !can_run("restart_fails_if_the_pod_stays_disconnected") {
        return;
    }
    let (cluster, [first, second, third]) = start(&["--max_restarts", "1", "--join_timeout", "3s"]);
    cluster.network.disconnect(2);
    let outcome =
        first.end().code(75).says("no heartbeat from it for 10 s (--lease); restart 1 of 1");
    let outcome = outcome.says("1 of 3 hosts did not join; there was no restart");
    let outcome = outcome.says("node 2 did not join within 3.0 s (--join_timeout)");
    assert_eq!(outcome.record()["cause"]["host"], "train-2");
    assert_eq!(epoch_1_of(&outcome), 0, "{outcome:#?}");
    second.end().code(75).says("there was no restart");
    let third = third.end().code(75);
    third.says(
        "error[R108]: node 0 (train-0.train:29501) was lost, and did not answer within 3.0 s (--join_timeout): ",
    );
}

#[test]
fn output_on_a_slow_link_delays_no_heartbeat() {
    if !can_run("output_on_a_slow_link_delays_no_heartbeat (pods)") {
        return;
    }
    let cluster = Cluster::new(2);
    let slowed = cluster.file("slowed");
    let script = "echo up; [ $RANK = 0 ] && exit 0; until [ -e $SLOWED ]; do sleep 0.05; done; \
                  timeout 10 yes; exit 0";
    let [first, second] = [0, 1].map(|rank| {
        // What may be on its way unacknowledged at most would hold this link up for 16 s.
        let pod = cluster.pod(rank, 2).option("--env");
        pod.option(format!("SLOWED={}", slowed.display())).sh(script).start()
    });
    first.wait_for_lines("up", 2);
    cluster.network.slow_down(1, "1mbit");
    std::fs::write(&slowed, "").expect("written");
    first.end().code(0).does_not_say("no heartbeat");
    second.end().code(0);
}

/// One packet in twenty, in both directions of both pods, while workers fill the link.
#[test]
fn packet_loss_loses_neither_pod_nor_line() {
    const NAME: &str = "packet_loss_loses_neither_pod_nor_line";
    const LINES: usize = 200_000;
    if !can_run(NAME) || !has("nft", NAME) {
        return;
    }
    let cluster = Cluster::new(2);
    (0..2).for_each(|pod| cluster.network.lose_packets(pod, 5));
    let [first, second] = [0, 1].map(|rank| {
        let pod = cluster.pod(rank, 2).options(["--prefix", ""]);
        pod.sh(&format!("seq {LINES}")).start()
    });
    let first = first.end().code(0).does_not_say("no heartbeat");
    assert_eq!(first.stdout_text().lines().count(), 2 * LINES);
    second.end().code(0);
    assert!((0..2).all(|pod| 0 < cluster.network.lost_packets(pod)), "the link lost nothing");
}

/// Between two of them there is no way but by the second interface of each, which was chosen.
#[test]
fn pods_connect_over_the_chosen_interface() {
    if !can_run("pods_connect_over_the_chosen_interface") {
        return;
    }
    let cluster = Cluster::new(3);
    cluster.network.add_second();
    cluster.network.drop_packets_between(1, 2);
    cluster.network.drop_packets_between(2, 1);
    let train = "train --model mlp --steps 5";
    let pods = [0, 1, 2].map(|rank| {
        let pod = cluster.pod(rank, 3).env("REMUDA_LOCAL_ADDR", "net1");
        pod.program([REMUDA]).program(train.split(' ')).start()
    });
    let [first, second, third] = pods;
    let first = first.end().code(0);
    assert!(first.stdout_text().contains("step 5/5"), "{first:#?}");
    second.end().code(0);
    third.end().code(0);
}

/// Pod 0 can reach both pods, so only a rank that waits for the other pod detects the cut and names it.
#[test]
fn waiting_ranks_name_the_pod_they_cannot_reach() {
    if !can_run("waiting_ranks_name_the_pod_they_cannot_reach") {
        return;
    }
    let cluster = Cluster::new(3);
    let pods = [0, 1, 2].map(|rank| cluster.pod(rank, 3).misbehave("sum-for-ever").start());
    let [first, second, third] = pods;
    first.wait_for_lines("summing", 3);
    cluster.network.drop_packets_between(1, 2);
    cluster.network.drop_packets_between(2, 1);
    let outcome = first.end().code(1).does_not_say("no heartbeat");
    drop(outcome.says("error[R101]: rank ").says("waiting for rank"));
    second.end().code(1).says("waiting for rank");
    third.end().code(1).says("waiting for rank");
}

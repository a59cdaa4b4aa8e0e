//! Links that are cut, for good or for a while.

use crate::netns::hosts::{Hosts, can_run};
use crate::support::launch::{Outcome, Running};
use crate::support::net::Network;

/// A worker on each of three hosts, all of which run until they are stopped.
fn start(options: &[&str]) -> (Hosts, Running) {
    let (hosts, launch) = Hosts::new(&[1, 1, 1]);
    let launch = launch.options(["--grace", "1s", "--lease", "10s"]).options(options);
    let script = "echo rank $RANK in epoch $TORCHELASTIC_RESTART_COUNT; \
                  [ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 1000; exit 0";
    let running = launch.sh(script).start();
    running.wait_for_lines("in epoch 0", 3);
    (hosts, running)
}

/// Cuts a link; the launcher names the node, and the node stops its workers by itself, because the link
/// stays cut until no process of the job is left.
#[track_caller]
fn check_lost(cut: impl FnOnce(&Network)) {
    let (hosts, running) = start(&[]);
    cut(&hosts.network);
    let outcome = running.end().code(75).says("no heartbeat from it for 10 s (--lease)");
    let record = outcome.record();
    assert_eq!(record["cause"]["kind"], "node_lost");
    assert_eq!(record["cause"]["host"], "n3");
}

#[test]
fn pulled_cable_is_detected_at_both_ends() {
    if can_run("pulled_cable_is_detected_at_both_ends") {
        check_lost(|network| network.disconnect(2));
    }
}

#[test]
fn node_whose_sends_are_lost_stops_its_workers() {
    if can_run("node_whose_sends_are_lost_stops_its_workers") {
        check_lost(|network| network.drop_packets_from(2));
    }
}

#[test]
fn node_whose_receives_are_lost_stops_its_workers() {
    if can_run("node_whose_receives_are_lost_stops_its_workers") {
        check_lost(|network| network.drop_packets_to(2));
    }
}

#[test]
fn link_restored_within_the_lease_keeps_the_job() {
    if !can_run("link_restored_within_the_lease_keeps_the_job") {
        return;
    }
    let (hosts, launch) = Hosts::new(&[1, 1]);
    let done = launch.dir().join("done");
    let launch = launch.option("--env").option(format!("DONE={}", done.display()));
    let script =
        "echo up; until [ -e $DONE ]; do echo $((i = i + 1)); sleep 0.1; done; echo end $i";
    let running = launch.sh(script).start();
    running.wait_for_lines("up", 2);
    hosts.network.disconnect(1);
    running.wait_for_error("n2: no heartbeat for 1");
    hosts.network.reconnect(1);
    std::fs::write(&done, "").expect("written");
    let outcome = running.end().code(0);
    let of_n2 = |line: &&str| line.starts_with("n2:");
    let lines: Vec<_> = outcome.stdout_text().lines().filter(of_n2).collect();
    let last: usize =
        lines.last().and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("i");
    assert_eq!(lines.len(), last + 2, "a line was lost: {lines:#?}");
}

#[track_caller]
fn epoch_1_of(outcome: &Outcome) -> usize {
    outcome.stdout_text().lines().filter(|line| line.contains("in epoch 1")).count()
}

#[test]
fn reconnected_node_takes_part_in_the_restart() {
    if !can_run("reconnected_node_takes_part_in_the_restart") {
        return;
    }
    let (hosts, running) = start(&["--max_restarts", "1"]);
    hosts.network.disconnect(2);
    running.wait_for_error("no heartbeat from it for 10 s (--lease); restart 1 of 1");
    hosts.network.reconnect(2);
    let outcome = running.end().code(0);
    assert_eq!(epoch_1_of(&outcome), 3, "{outcome:#?}");
    assert_eq!(outcome.record()["epochs"][0]["cause"]["host"], "n3");
}

#[test]
fn restart_without_a_lost_node_ends_with_its_loss() {
    if !can_run("restart_without_a_lost_node_ends_with_its_loss") {
        return;
    }
    let (hosts, running) = start(&["--max_restarts", "1"]);
    hosts.network.disconnect(2);
    let outcome =
        running.end().code(75).says("no heartbeat from it for 10 s (--lease); restart 1 of 1");
    let outcome = outcome.says("1 of 3 hosts cannot be reached; there was no restart");
    assert_eq!(outcome.record()["cause"]["host"], "n3");
    assert_eq!(epoch_1_of(&outcome), 0, "{outcome:#?}");
}

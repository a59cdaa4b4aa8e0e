//! Links that are slow, or lose packets.

use crate::netns::hosts::{Hosts, can_run};
use crate::support::proof::has;

#[test]
fn slow_link_with_much_output_keeps_heartbeats() {
    if !can_run("slow_link_with_much_output_keeps_heartbeats") {
        return;
    }
    let (hosts, launch) = Hosts::new(&[2]);
    // The maximum of unacknowledged output would occupy this link for 16 s.
    let launch = launch.option("--force_multi");
    let slowed = launch.dir().join("slowed");
    let launch = launch.option("--env").option(format!("SLOWED={}", slowed.display()));
    let script = "echo up; until [ -e $SLOWED ]; do sleep 0.05; done; timeout 10 yes; exit 0";
    let running = launch.sh(script).start();
    running.wait_for_lines("up", 2);
    hosts.network.slow_down(0, "1mbit");
    std::fs::write(&slowed, "").expect("written");
    running.end().code(0).does_not_say("no heartbeat");
}

/// One packet in twenty, in both directions, while workers fill the link.
#[test]
fn lost_packets_cost_neither_a_node_nor_a_line() {
    const NAME: &str = "lost_packets_cost_neither_a_node_nor_a_line";
    const LINES: usize = 50_000;
    if !can_run(NAME) || !has("nft", NAME) {
        return;
    }
    let (hosts, launch) = Hosts::new(&[1, 1]);
    for host in 0..2 {
        hosts.network.lose_packets(host, 5);
    }
    let launch = launch.options(["--prefix", ""]);
    let outcome = launch.sh(&format!("seq {LINES}")).end().code(0).does_not_say("no heartbeat");
    assert_eq!(outcome.stdout_text().lines().count(), 2 * LINES);
    assert!((0..2).all(|host| 0 < hosts.network.lost_packets(host)), "the link lost nothing");
}

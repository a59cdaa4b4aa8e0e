//! Links that are slow.

use crate::hosts::{Hosts, can_run};

#[test]
fn a_flood_of_output_on_a_slow_link_delays_no_beat() {
    if !can_run("a_flood_of_output_on_a_slow_link_delays_no_beat") {
        return;
    }
    let (hosts, launch) = Hosts::new(&[2]);
    // What may be on its way unacknowledged at most would hold this link up for 16 s.
    let launch = launch.options(["--lease", "4s", "--force_multi"]);
    let slowed = launch.dir().join("slowed");
    let launch = launch.option("--env").option(format!("SLOWED={}", slowed.display()));
    let script = "echo up; until [ -e $SLOWED ]; do sleep 0.05; done; timeout 10 yes; exit 0";
    let running = launch.sh(script).start();
    running.wait_for_lines("up", 2);
    hosts.network.slow_down(0, "1mbit");
    std::fs::write(&slowed, "").expect("written");
    running.end().code(0).does_not_say("nothing heard");
}

//! Nodes that are reached from here and do not reach each other: every node is a network namespace
//! with an sshd, and packets are dropped on the way.

use crate::Doctor;
use crate::hosts::{Hosts, can_run};
use crate::support::net::Network;

fn doctor(hosts: &Hosts, launch: &crate::support::launch::Launch) -> Doctor {
    let enter = hosts.network.head.enter();
    Doctor::over_ssh(launch.dir()).word("--quick").through(&enter)
}

#[test]
fn a_node_that_the_others_do_not_reach_is_named() {
    if !can_run("a_node_that_the_others_do_not_reach_is_named") {
        return;
    }
    let (hosts, launch) = Hosts::new(&[1, 1, 1]);
    let said = doctor(&hosts, &launch).run().does_not_say("error[");
    drop(said);
    // The head still reaches it, and it answers the head.
    for other in [0, 1] {
        let way = format!("ip route add blackhole {}/32", Network::address(2));
        hosts.network.host(other).run(&way);
    }
    let said = doctor(&hosts, &launch).run().code(1);
    let said = said.says("error[D031]: n3: the other nodes cannot connect to it: ");
    said.says("errors on 1, 2 usable");
}

#[test]
fn a_way_that_is_closed_between_two_is_told_of_both() {
    if !can_run("a_way_that_is_closed_between_two_is_told_of_both") {
        return;
    }
    let (hosts, launch) = Hosts::new(&[1, 1, 1]);
    let way = format!("ip route add unreachable {}/32", Network::address(1));
    hosts.network.host(2).run(&way);
    let said = doctor(&hosts, &launch).run().code(1);
    said.says("error[D030]: n3: it cannot connect to n2: no route to its address");
}

//! Nodes that the launcher can reach and that cannot connect to each other: every node is a network
//! namespace with an sshd, and packets between namespaces are dropped.

use crate::doctor::Doctor;
use crate::netns::hosts::{Hosts, can_run};
use crate::support::net::Network;

fn doctor(hosts: &Hosts, launch: &crate::support::launch::Launch) -> Doctor {
    let enter = hosts.network.head.enter();
    Doctor::over_ssh(launch.dir()).word("--quick").through(&enter)
}

#[test]
fn doctor_names_a_node_that_others_cannot_reach() {
    if !can_run("doctor_names_a_node_that_others_cannot_reach") {
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
fn doctor_names_both_nodes_of_a_blocked_path() {
    if !can_run("doctor_names_both_nodes_of_a_blocked_path") {
        return;
    }
    let (hosts, launch) = Hosts::new(&[1, 1, 1]);
    let way = format!("ip route add unreachable {}/32", Network::address(1));
    hosts.network.host(2).run(&way);
    let said = doctor(&hosts, &launch).run().code(1);
    said.says("error[D030]: n3 cannot connect to n2: no route to its address");
}

//! Names of hosts that the lines of a job do not have: nodes that are started one by one are known by number until
//! they join.

use std::collections::BTreeMap;

use crate::base::{HostName, NodeRank};
use crate::plan::LaunchPlan;

/// Names of the machines of nodes that have joined.
#[derive(Debug, Default)]
pub(in crate::launch) struct MachineNames(BTreeMap<NodeRank, HostName>);

impl MachineNames {
    /// Notes the machine of a node, unless its name cannot be that of a host.
    pub(in crate::launch) fn set(&mut self, node: NodeRank, machine: &str) {
        match HostName::parse(machine) {
            Ok(name) => drop(self.0.insert(node, name)),
            Err(_) => drop(self.0.remove(&node)),
        }
    }

    /// Gives the hosts of a plan the names of their machines. Several nodes on one machine keep their names, for
    /// only these tell them apart; so does a node as long as it is alone.
    pub(in crate::launch) fn name_hosts(&self, plan: &mut LaunchPlan) {
        let mut nodes_of: BTreeMap<&str, u32> = BTreeMap::new();
        for name in self.0.values() {
            *nodes_of.entry(name.as_str()).or_default() += 1;
        }
        if nodes_of.len() < 2 {
            return;
        }
        for node in &mut plan.nodes {
            let machine = self.0.get(&node.node_rank);
            if let Some(machine) = machine.filter(|name| nodes_of[name.as_str()] == 1) {
                node.host = machine.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::scale::plan_of;

    #[test]
    fn machines_with_several_nodes_do_not_name_them() {
        let names = |machines: &[(u32, &str)]| {
            let mut names = MachineNames::default();
            for (node, machine) in machines {
                names.set(NodeRank(*node), machine);
            }
            let mut plan = plan_of(3);
            let own = plan.nodes[1].host.to_string();
            names.name_hosts(&mut plan);
            let hosts = plan.nodes.iter().map(|node| node.host.to_string().replace(&own, "own"));
            hosts.collect::<Vec<_>>()
        };
        let own = |node: usize| plan_of(3).nodes[node].host.to_string();
        assert_eq!(names(&[(0, "a"), (1, "b"), (2, "c")]), ["a", "b", "c"]);
        assert_eq!(names(&[(0, "a"), (1, "b"), (2, "a")]), [own(0), "b".to_owned(), own(2)]);
        assert_eq!(names(&[(0, "a")])[0], own(0), "it is alone");
        assert_eq!(names(&[(0, "a"), (1, "no name")])[1], "own");
    }
}

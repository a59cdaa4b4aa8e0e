//! Who held up a job whose time ran out before it began.

use super::dispatcher::Dispatcher;
use super::voice;
use crate::plan::NodePlan;

/// Hosts that had not answered, in the order of their ranks. Empty, once workers were started.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    connecting: Vec<String>,
    preparing: Vec<String>,
}

impl Awaited {
    /// Each kind on a line of its own.
    pub(super) fn show(&self) -> Vec<String> {
        let kinds = [("connecting to", &self.connecting), ("preparing", &self.preparing)];
        let kinds = kinds.into_iter().filter(|(_, hosts)| !hosts.is_empty());
        kinds.map(|(what, hosts)| format!("still {what}: {}", voice::folded(hosts))).collect()
    }
}

impl Dispatcher<'_> {
    /// The nodes without which nothing can start, and how far we came with each.
    pub(super) fn awaited(&self) -> Awaited {
        let (connecting, preparing): (Vec<&NodePlan>, Vec<&NodePlan>) =
            self.unanswered().partition(|node| self.nodes[node.node_rank.index()].heard.is_none());
        let names =
            |nodes: Vec<&NodePlan>| nodes.iter().map(|node| node.host.to_string()).collect();
        Awaited { connecting: names(connecting), preparing: names(preparing) }
    }

    /// Nodes that have neither said that they can start nor that they cannot.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &NodePlan> {
        self.plan.nodes.iter().filter(|node| {
            let (node, index) = (node.node_rank, node.node_rank.index());
            let is_answered = self.found[index].is_some()
                || self.nodes[index].lost
                || self.faults.iter().any(|(faulty, _)| *faulty == node)
                || self.problems.iter().any(|(refusing, _)| *refusing == node);
            !is_answered
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_folded_by_how_far_we_came() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let awaited = Awaited { connecting: names(&["n2", "n3", "n5"]), preparing: names(&["n1"]) };
        assert_eq!(awaited.show(), ["still connecting to: n[2-3,5]", "still preparing: n1"]);
        let odd: Vec<String> = (0..100).map(|number| format!("n{}", number * 7)).collect();
        let awaited = Awaited { connecting: odd, preparing: Vec::new() };
        assert_eq!(awaited.show(), ["still connecting to: n0, n7, n14, n21 and 96 more"]);
        assert!(Awaited::default().show().is_empty());
    }
}

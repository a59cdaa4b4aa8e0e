//! The plan of an epoch in which only some of the nodes take part.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;

use crate::base::{LocalRank, NodeRank, Rank, Slot};
use crate::plan::workers::launch_plan::{LaunchPlan, NodePlan, WorkerPlan};
use crate::plan::workers::template::{JobSize, NodeShare};

impl LaunchPlan {
    /// Returns the plan in which these nodes start other numbers of workers, on their first slots.
    #[must_use]
    pub fn with_workers(&self, of_nodes: &BTreeMap<NodeRank, usize>) -> Self {
        let with_workers = |node: &NodePlan| {
            let workers = *of_nodes.get(&node.node_rank)?;
            let first = node.workers.first()?;
            (workers != node.workers.len()).then(|| resized(node, first, workers))
        };
        let nodes = self
            .nodes
            .iter()
            .map(|node| with_workers(node).unwrap_or_else(|| node.clone()))
            .collect();
        Self { nodes, ..self.clone() }.for_members(|_| true)
    }

    /// Returns the plan of an epoch on the nodes for which `is_member` holds. Ranks of workers and of groups are
    /// counted through these nodes; the others stay in the list, without workers.
    #[must_use]
    pub fn for_members(&self, is_member: impl Fn(NodeRank) -> bool) -> Self {
        let has_part = |node: &&NodePlan| is_member(node.node_rank);
        let workers: usize =
            self.nodes.iter().filter(has_part).map(|node| node.workers.len()).sum();
        let job_size =
            JobSize { workers: workers as u32, nodes: self.nodes.iter().filter(has_part).count() };
        let (mut ranks, mut groups) = ((0..).map(Rank), (0..).map(NodeRank));
        let of_node = |node: &NodePlan| {
            if !has_part(&node) {
                return NodePlan { workers: Vec::new(), ..node.clone() };
            }
            let group = groups.next().expect("numbers do not run out");
            // All workers of a node have one share.
            let share = node.workers.first().map(|worker| {
                Arc::new(NodeShare { node_rank: group, job_size, ..(*worker.share).clone() })
            });
            let renumbered = |worker: &WorkerPlan| WorkerPlan {
                rank: ranks.next().expect("numbers do not run out"),
                share: share.clone().expect("a worker has a share"),
                ..worker.clone()
            };
            NodePlan { workers: node.workers.iter().map(renumbered).collect(), ..node.clone() }
        };
        let nodes = self.nodes.iter().map(of_node).collect();
        Self { world_size: job_size.workers, nodes, ..self.clone() }
    }
}

/// A node with another number of workers, whose ranks are not counted yet.
fn resized(node: &NodePlan, first: &WorkerPlan, workers: usize) -> NodePlan {
    let slots: Vec<_> = (0..).map(Slot).take(workers).collect();
    let devices = slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (local_size, devices) = (slots.len(), OsStr::new(&devices).into());
    let share = Arc::new(NodeShare { local_size, devices, ..(*first.share).clone() });
    let worker = |(local_rank, slot): (LocalRank, &Slot)| WorkerPlan {
        local_rank,
        slot: *slot,
        share: Arc::clone(&share),
        ..first.clone()
    };
    let workers = (0..).map(LocalRank).zip(&slots).map(worker).collect();
    NodePlan { slots, workers, ..node.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{HostName, JobId, env_vars};
    use crate::plan::{
        Accelerator, Bindings, Conventions, JobSpec, MasterAddr, Program, RendezvousPort,
        ThreadShare, plan,
    };

    fn three_nodes() -> LaunchPlan {
        let node = |name: &str| (HostName::parse(name).expect("a name"), vec![Slot(0), Slot(1)]);
        let spec = JobSpec {
            nodes: ["a", "b", "c"].map(node).into(),
            accelerator: Accelerator::Cpu,
            device_names: Vec::new(),
            program: Program::Exec { program: "train".into(), local_rank: false },
            args: Vec::new(),
            master_addr: MasterAddr::AskNode0,
            master_port: RendezvousPort::Usual,
            conventions: Conventions::DeepSpeed,
            restarts_max: 0,
            exports: Vec::new(),
        };
        plan(&spec).expect("a plan")
    }

    /// Variables of a worker.
    fn variables(worker: &WorkerPlan, names: &[&str]) -> Vec<String> {
        let bindings =
            Bindings { master_addr: "a".to_owned(), master_port: 1, job: JobId("j".to_owned()) };
        let env = worker.bind(&bindings, ThreadShare::Inherited, crate::base::Epoch(0));
        let value = |name: &&str| {
            let (_, value) = env.iter().find(|(found, _)| found == *name).expect("it is set");
            value.to_string_lossy().into_owned()
        };
        names.iter().map(value).collect()
    }

    #[test]
    fn ranks_are_counted_through_the_members() {
        let epoch = three_nodes().for_members(|node| node != NodeRank(1));
        assert_eq!((epoch.world_size, epoch.node_count(), epoch.nodes.len()), (4, 2, 3));
        assert!(epoch.nodes[1].workers.is_empty());
        let last = &epoch.nodes[2].workers[1];
        assert_eq!((last.rank, last.local_rank.0), (Rank(3), 1));
        let names = [
            env_vars::RANK,
            env_vars::WORLD_SIZE,
            env_vars::GROUP_RANK,
            env_vars::GROUP_WORLD_SIZE,
            env_vars::LOCAL_WORLD_SIZE,
        ];
        assert_eq!(variables(last, &names), ["3", "4", "1", "2", "2"]);
    }

    #[test]
    fn ranks_are_counted_through_nodes_of_other_sizes() {
        let sizes = [(NodeRank(0), 1), (NodeRank(1), 3)].into();
        let plan = three_nodes().with_workers(&sizes);
        assert_eq!((plan.world_size, plan.nodes[1].slots.len()), (6, 3));
        let ranks =
            plan.nodes.iter().flat_map(|node| node.workers.iter().map(|worker| worker.rank));
        assert!(ranks.eq((0..6).map(Rank)));
        let names = [env_vars::RANK, env_vars::WORLD_SIZE, env_vars::LOCAL_WORLD_SIZE];
        assert_eq!(variables(&plan.nodes[1].workers[2], &names), ["3", "6", "3"]);
        assert_eq!(variables(&plan.nodes[2].workers[0], &names), ["4", "6", "2"]);
        assert_eq!(three_nodes().with_workers(&BTreeMap::new()), three_nodes());
    }

    #[test]
    fn epoch_of_all_nodes_is_the_plan() {
        assert_eq!(three_nodes().for_members(|_| true), three_nodes());
    }
}

//! Placement of ranks on nodes. Pure: no I/O, no clock, no transport.

/// Node of every rank. Any placement is valid, including uneven and scattered ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    hosts: Vec<String>,
    node_of: Vec<usize>,
    local_of: Vec<usize>,
    ranks_of: Vec<Vec<usize>>,
}

impl Placement {
    /// Creates a placement in which `node_of[rank]` is an index into `hosts`. `None` unless every node
    /// has a rank and every rank a node. Local ranks follow the order of ranks.
    pub fn new(hosts: Vec<String>, node_of: Vec<usize>) -> Option<Self> {
        let mut ranks_of = vec![Vec::new(); hosts.len()];
        let mut local_of = Vec::with_capacity(node_of.len());
        for (rank, &node) in node_of.iter().enumerate() {
            let ranks: &mut Vec<usize> = ranks_of.get_mut(node)?;
            local_of.push(ranks.len());
            ranks.push(rank);
        }
        let is_complete = !node_of.is_empty() && ranks_of.iter().all(|ranks| !ranks.is_empty());
        is_complete.then_some(Self { hosts, node_of, local_of, ranks_of })
    }

    /// Creates a placement of all ranks on one node.
    pub fn one_node(host: &str, ranks: usize) -> Self {
        Self::new(vec![host.to_owned()], vec![0; ranks]).expect("there is at least one rank")
    }

    /// Returns the placement of some of the ranks, renumbered in the order of `members`. Nodes keep their
    /// order.
    #[must_use]
    pub fn part(&self, members: &[usize]) -> Self {
        let nodes: Vec<usize> = (0..self.nodes())
            .filter(|node| members.iter().any(|member| self.node_of[*member] == *node))
            .collect();
        let index = |member: &usize| nodes.binary_search(&self.node_of[*member]);
        let node_of = members.iter().map(|member| index(member).expect("nodes of all members"));
        let hosts = nodes.iter().map(|node| self.hosts[*node].clone()).collect();
        Self::new(hosts, node_of.collect()).expect("every remaining node has a member")
    }

    /// Returns the number of ranks of the job.
    pub fn world_size(&self) -> usize {
        self.node_of.len()
    }

    /// Returns the number of nodes of the job.
    pub fn nodes(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the node of a rank.
    pub fn node_of(&self, rank: usize) -> usize {
        self.node_of[rank]
    }

    /// Returns the node of every rank.
    pub fn node_of_all(&self) -> &[usize] {
        &self.node_of
    }

    /// Returns the local rank of a rank on its node.
    pub fn local_of(&self, rank: usize) -> usize {
        self.local_of[rank]
    }

    /// Returns the ranks of a node, ascending.
    pub fn ranks_of(&self, node: usize) -> &[usize] {
        &self.ranks_of[node]
    }

    /// Returns the name of the host of a rank.
    pub fn host_of(&self, rank: usize) -> &str {
        &self.hosts[self.node_of[rank]]
    }

    /// Renames every host to `name_of` of its first rank.
    pub fn rename_hosts(&mut self, name_of: impl Fn(usize) -> String) {
        self.hosts = self.ranks_of.iter().map(|ranks| name_of(ranks[0])).collect();
    }

    /// Returns the rank on `node` that processes the part of an operation that belongs to `rank`: the
    /// rank itself on its own node; on another node a rank that depends on the local rank, so that several
    /// work in parallel and first ranks of nodes communicate with first ranks of nodes.
    pub fn helper(&self, node: usize, rank: usize) -> usize {
        if self.node_of[rank] == node {
            rank
        } else {
            self.ranks_of[node][self.local_of[rank] % self.ranks_of[node].len()]
        }
    }

    /// Returns the helpers of `rank` on the other nodes: `(node, helper)`.
    pub fn helpers(&self, rank: usize) -> impl Iterator<Item = (usize, usize)> {
        let own_node = self.node_of[rank];
        (0..self.nodes()).filter(move |node| *node != own_node).map(move |node| {
            let helper = self.helper(node, rank);
            (node, helper)
        })
    }

    /// Returns the ranks of other nodes that `rank` helps, ascending.
    pub fn helped_by(&self, rank: usize) -> impl Iterator<Item = usize> {
        let own_node = self.node_of[rank];
        (0..self.world_size()).filter(move |other| {
            self.node_of[*other] != own_node && self.helper(own_node, *other) == rank
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn placement_rejects_impossible_nodes() {
        let hosts = |count: usize| (0..count).map(|host| format!("n{host}")).collect::<Vec<_>>();
        assert_eq!(Placement::new(hosts(2), vec![0, 0]), None);
        assert_eq!(Placement::new(hosts(1), vec![0, 1]), None);
        assert_eq!(Placement::new(hosts(0), vec![]), None);
    }

    #[test]
    fn placement_of_a_part_keeps_the_nodes() {
        let hosts = ["a", "b", "c"].map(str::to_owned).to_vec();
        let part = Placement::new(hosts, vec![0, 1, 1, 2, 2]).unwrap().part(&[4, 0, 3]);
        assert_eq!([0, 1, 2].map(|rank| part.host_of(rank)), ["c", "a", "c"]);
        assert_eq!([0, 1, 2].map(|rank| part.local_of(rank)), [0, 0, 1]);
        assert_eq!((part.nodes(), part.ranks_of(1)), (2, &[0, 2][..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// On every node exactly one rank helps each rank, and both sides agree.
        #[test]
        fn helpers_and_owners_agree(node_of in proptest::collection::vec(0usize..4, 1..30)) {
            let hosts = (0..4).map(|host| host.to_string()).collect();
            let Some(placement) = Placement::new(hosts, node_of) else { return Ok(()) };
            for rank in 0..placement.world_size() {
                for (node, helper) in placement.helpers(rank) {
                    prop_assert_eq!(placement.node_of(helper), node);
                    prop_assert!(placement.helped_by(helper).any(|helped| helped == rank));
                }
                for helped in placement.helped_by(rank) {
                    prop_assert!(placement.helpers(helped).any(|(_, helper)| helper == rank));
                }
            }
            for node in 0..placement.nodes() {
                let first = placement.ranks_of(node)[0];
                for (other, helper) in placement.helpers(first) {
                    prop_assert_eq!(helper, placement.ranks_of(other)[0]);
                }
            }
        }
    }
}

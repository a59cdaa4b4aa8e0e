//! Placement of ranks, and division of operations into slices and rounds. Pure: no I/O, no clock, no
//! transport.

use std::ops::Range;

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
        let home = self.node_of[rank];
        (0..self.nodes()).filter(move |node| *node != home).map(move |node| {
            let helper = self.helper(node, rank);
            (node, helper)
        })
    }

    /// Returns the ranks of other nodes that `rank` helps, ascending.
    pub fn helped_by(&self, rank: usize) -> impl Iterator<Item = usize> {
        let home = self.node_of[rank];
        (0..self.world_size())
            .filter(move |other| self.node_of[*other] != home && self.helper(home, *other) == rank)
    }
}

/// Alignment of slices in elements: a cache line for one-byte types, so that no two ranks write to
/// one.
const SLICE_UNIT: usize = 64;

/// Returns part `index` of `count` elements that are divided among `parts` ranks: contiguous, in order,
/// and as even as whole units allow.
pub fn slice(count: usize, parts: usize, index: usize) -> Range<usize> {
    let units = count.div_ceil(SLICE_UNIT);
    let start = |index: usize| (units * index / parts * SLICE_UNIT).min(count);
    start(index)..start(index + 1)
}

/// Divides `count` elements into pieces of at most `each`; at least one piece, which can be empty, because
/// every operation has at least one barrier.
pub fn rounds(count: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let rounds = count.div_ceil(each).max(1);
    (0..rounds).map(move |round| round * each..count.min((round + 1) * each))
}

/// Divides a range into blocks of at most `each`; none if it is empty.
pub fn blocks(range: Range<usize>, each: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(each).map(move |start| start..end.min(start + each))
}

/// One step of a ring member: it sends one part to the next member and receives another part from the
/// previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingStep {
    /// Part that is sent to the next member.
    pub send: usize,
    /// Part that is received from the previous member.
    pub recv: usize,
}

/// Returns the steps of one of `members` members that first sends part `first` and then forwards the
/// part that it has received: after these steps, every member has had every part.
pub fn ring(members: usize, first: usize) -> impl Iterator<Item = RingStep> {
    let part = move |step: usize| (first + members - step) % members;
    (1..members).map(move |step| RingStep { send: part(step - 1), recv: part(step) })
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
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

    #[test]
    fn rounds_and_blocks_cover_the_range() {
        assert_eq!(rounds(0, 4).collect::<Vec<_>>(), [0..0]);
        assert_eq!(rounds(9, 4).collect::<Vec<_>>(), [0..4, 4..8, 8..9]);
        assert_eq!(blocks(3..3, 4).count(), 0);
        assert_eq!(blocks(3..9, 4).collect::<Vec<_>>(), [3..7, 7..9]);
    }

    #[test]
    fn ring_sums_all_parts_and_distributes_them() {
        for count in 1..9 {
            // For each member and part, the members that have contributed to the sum.
            let mut sums: Vec<Vec<Vec<usize>>> =
                (0..count).map(|member| vec![vec![member]; count]).collect();
            let mut run = |first: fn(usize) -> usize, adds: bool| {
                for step in 0..count.saturating_sub(1) {
                    let before = sums.clone();
                    for (member, sums) in sums.iter_mut().enumerate() {
                        let previous = (member + count - 1) % count;
                        let steps = |member| ring(count, first(member)).nth(step).unwrap();
                        let RingStep { recv, .. } = steps(member);
                        assert_eq!(recv, steps(previous).send, "both sides name one part");
                        let received = &before[previous][recv];
                        let sum = &mut sums[recv];
                        if adds { sum.extend(received) } else { sum.clone_from(received) }
                    }
                }
            };
            run(|member| member, true);
            run(|member| member + 1, false);
            for parts in &mut sums {
                for part in parts {
                    part.sort_unstable();
                    assert!(part.iter().copied().eq(0..count), "{count} members: {part:?}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn slices_cover_each_element_once(count in 0usize..100_000, parts in 1usize..20) {
            let mut next = 0;
            for index in 0..parts {
                let slice = slice(count, parts, index);
                prop_assert_eq!(slice.start, next);
                next = slice.end;
            }
            prop_assert_eq!(next, count);
        }

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

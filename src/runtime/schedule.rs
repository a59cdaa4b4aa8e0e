//! Who does what in an operation, as data: placement of ranks, slices, rounds. No I/O, no clock, no
//! transport.

use std::ops::Range;

/// Where every rank runs. Any placement is allowed, uneven and scattered ones too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    hosts: Vec<String>,
    node_of: Vec<usize>,
    local_of: Vec<usize>,
    ranks_of: Vec<Vec<usize>>,
}

impl Placement {
    /// `node_of[rank]` is an index into `hosts`. `None` unless every node has a rank and every rank
    /// a node. The position of a rank on its node is its place in rank order.
    pub fn new(hosts: Vec<String>, node_of: Vec<usize>) -> Option<Self> {
        let mut ranks_of = vec![Vec::new(); hosts.len()];
        let mut local_of = Vec::with_capacity(node_of.len());
        for (rank, &node) in node_of.iter().enumerate() {
            let ranks: &mut Vec<usize> = ranks_of.get_mut(node)?;
            local_of.push(ranks.len());
            ranks.push(rank);
        }
        let inhabited = !node_of.is_empty() && ranks_of.iter().all(|ranks| !ranks.is_empty());
        inhabited.then_some(Self { hosts, node_of, local_of, ranks_of })
    }

    /// All ranks on one node.
    pub fn one_node(host: &str, ranks: usize) -> Self {
        Self::new(vec![host.to_owned()], vec![0; ranks]).expect("there is at least one rank")
    }

    /// Where some of the ranks run, renumbered in the order of `members`. Nodes stay in order.
    #[must_use]
    pub fn part(&self, members: &[usize]) -> Self {
        let nodes: Vec<usize> = (0..self.nodes())
            .filter(|node| members.iter().any(|member| self.node_of[*member] == *node))
            .collect();
        let place = |member: &usize| nodes.binary_search(&self.node_of[*member]);
        let node_of = members.iter().map(|member| place(member).expect("nodes of all members"));
        let hosts = nodes.iter().map(|node| self.hosts[*node].clone()).collect();
        Self::new(hosts, node_of.collect()).expect("every node that is left has a member")
    }

    /// Ranks of the job.
    pub fn world_size(&self) -> usize {
        self.node_of.len()
    }

    /// Nodes of the job.
    pub fn nodes(&self) -> usize {
        self.hosts.len()
    }

    /// Node of a rank.
    pub fn node_of(&self, rank: usize) -> usize {
        self.node_of[rank]
    }

    /// Node of every rank.
    pub fn node_of_all(&self) -> &[usize] {
        &self.node_of
    }

    /// Position of a rank among those of its node.
    pub fn local_of(&self, rank: usize) -> usize {
        self.local_of[rank]
    }

    /// Ranks of a node, ascending.
    pub fn ranks_of(&self, node: usize) -> &[usize] {
        &self.ranks_of[node]
    }

    /// Name of the host on which a rank runs.
    pub fn host_of(&self, rank: usize) -> &str {
        &self.hosts[self.node_of[rank]]
    }

    /// Renames every host by what `name_of` says of its first rank.
    pub fn rename_hosts(&mut self, name_of: impl Fn(usize) -> String) {
        self.hosts = self.ranks_of.iter().map(|ranks| name_of(ranks[0])).collect();
    }

    /// Who on `node` handles the part of an operation that belongs to `rank`: the rank itself at
    /// home, elsewhere one that depends on its local position, so that several work at once and
    /// first ranks of nodes always talk to first ranks of nodes.
    pub fn helper(&self, node: usize, rank: usize) -> usize {
        if self.node_of[rank] == node {
            rank
        } else {
            self.ranks_of[node][self.local_of[rank] % self.ranks_of[node].len()]
        }
    }

    /// Whoever helps `rank` on the other nodes: `(node, helper)`.
    pub fn helpers(&self, rank: usize) -> impl Iterator<Item = (usize, usize)> {
        let home = self.node_of[rank];
        (0..self.nodes()).filter(move |node| *node != home).map(move |node| {
            let helper = self.helper(node, rank);
            (node, helper)
        })
    }

    /// The ranks of other nodes that `rank` helps, ascending.
    pub fn helped_by(&self, rank: usize) -> impl Iterator<Item = usize> {
        let home = self.node_of[rank];
        (0..self.world_size())
            .filter(move |other| self.node_of[*other] != home && self.helper(home, *other) == rank)
    }
}

/// Alignment of slices in elements: a cache line for one-byte types, so that no two ranks write to
/// one.
const SLICE_UNIT: usize = 64;

/// Part `index` when `count` elements are shared between `parts` ranks: contiguous, in order,
/// as even as whole units allow.
pub fn slice(count: usize, parts: usize, index: usize) -> Range<usize> {
    let units = count.div_ceil(SLICE_UNIT);
    let start = |index: usize| (units * index / parts * SLICE_UNIT).min(count);
    start(index)..start(index + 1)
}

/// Cuts `count` elements into pieces of at most `each`; at least one, even if it is empty, because
/// every operation meets at least once.
pub fn rounds(count: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let rounds = count.div_ceil(each).max(1);
    (0..rounds).map(move |round| round * each..count.min((round + 1) * each))
}

/// Cuts a range into blocks of at most `each`; none when it is empty.
pub fn blocks(range: Range<usize>, each: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(each).map(move |start| start..end.min(start + each))
}

/// What a place of a ring does at once: it gives a part to the next place and takes another from the
/// previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingStep {
    /// The part that goes to the next.
    pub give: usize,
    /// The part that comes from the previous.
    pub take: usize,
}

/// The steps of one of `places` that beginning with part `first` passes on what it took: after them a
/// part has been everywhere.
pub fn ring(places: usize, first: usize) -> impl Iterator<Item = RingStep> {
    let part = move |step: usize| (first + places - step) % places;
    (1..places).map(move |step| RingStep { give: part(step - 1), take: part(step) })
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
        for places in 1..9 {
            // For each place and part, the places that have contributed to the sum.
            let mut known: Vec<Vec<Vec<usize>>> =
                (0..places).map(|place| vec![vec![place]; places]).collect();
            let mut turn = |first: fn(usize) -> usize, adds: bool| {
                for step in 0..places.saturating_sub(1) {
                    let before = known.clone();
                    for (place, known) in known.iter_mut().enumerate() {
                        let previous = (place + places - 1) % places;
                        let steps = |place| ring(places, first(place)).nth(step).unwrap();
                        let RingStep { take, .. } = steps(place);
                        assert_eq!(take, steps(previous).give, "both mean one part");
                        let came = &before[previous][take];
                        let mine = &mut known[take];
                        if adds { mine.extend(came) } else { mine.clone_from(came) }
                    }
                }
            };
            turn(|place| place, true);
            turn(|place| place + 1, false);
            for parts in &mut known {
                for part in parts {
                    part.sort_unstable();
                    assert!(part.iter().copied().eq(0..places), "{places} places: {part:?}");
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

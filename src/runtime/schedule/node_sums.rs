//! Plan of reductions on devices of several nodes in the canonical order: the ranks of a node fold the data of the node,
//! and then the ranks with the same local rank fold the sums of the nodes.
//!
//! The sum of a node must be a subtree of the canonical tree. A node sends the others as much as one rank has, instead of
//! as much as all its ranks have. Pure: no I/O, no device.

use std::ops::Range;

use crate::cuda::nccl::PeerSlice;
use crate::runtime::schedule::device_slices::{ReductionRound, STRIDE_UNIT};
use crate::runtime::schedule::{Placement, blocks, slice};

/// Nodes with equally many ranks: rank `n · each + l` is the one with local rank `l` on node `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvenNodes {
    /// Number of nodes, at least 2.
    pub(crate) nodes: usize,
    /// Ranks of a node: a power of two, at least 2.
    pub(crate) each: usize,
}

/// What is done with the memory of all ranks, one after the other. Ranges are those of the memory that is reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeSumStep {
    /// Some ranks reduce their data in place.
    Fold(ReductionRound),
    /// The ranks of a node send each other their results.
    Share {
        /// To the other ranks of the node.
        sends: Vec<PeerSlice>,
        /// From the other ranks of the node.
        recvs: Vec<PeerSlice>,
    },
}

/// Ranks that fold together, and this one among them.
struct Folding {
    ranks: Vec<usize>,
    own: usize,
    /// Whether all of them get the whole result; otherwise each keeps what it has folded.
    to_all: bool,
}

impl NodeSumStep {
    /// Number of elements of scratch memory that the step uses.
    pub(crate) fn scratch(&self) -> usize {
        match self {
            Self::Fold(round) => round.scratch(),
            Self::Share { .. } => 0,
        }
    }
}

impl EvenNodes {
    /// Returns the nodes of ranks if the sum of each node is a subtree of the canonical tree: if every node has the same
    /// number of ranks, a power of two, and they are successive. `None` also if there is one node, or one rank a node.
    pub(crate) fn of(placement: &Placement) -> Option<Self> {
        let (nodes, world) = (placement.nodes(), placement.world_size());
        let each = world / nodes;
        let is_even = (0..world).all(|rank| placement.node_of(rank) == rank / each);
        (is_even && 2 <= nodes && 2 <= each && each.is_power_of_two())
            .then_some(Self { nodes, each })
    }

    fn world(self) -> usize {
        self.nodes * self.each
    }

    /// The ranks on the node of a rank.
    fn neighbours(self, rank: usize, to_all: bool) -> Folding {
        let first = rank - rank % self.each;
        Folding { ranks: (first..first + self.each).collect(), own: rank % self.each, to_all }
    }

    /// The ranks with the local rank of a rank, on all nodes.
    fn counterparts(self, rank: usize, to_all: bool) -> Folding {
        let local = rank % self.each;
        let ranks = (0..self.nodes).map(|node| node * self.each + local).collect();
        Folding { ranks, own: rank / self.each, to_all }
    }

    /// Plans the reduction of `len` elements, which all ranks get. In a step, the scratch memory of a rank holds about
    /// `scratch_max` elements, and up to one alignment unit more for every rank that folds with it.
    pub(crate) fn plan_all(
        self,
        rank: usize,
        len: usize,
        scratch_max: usize,
    ) -> impl Iterator<Item = NodeSumStep> {
        blocks(0..len, scratch_max.max(1)).flat_map(move |chunk| self.steps_of_all(rank, &chunk))
    }

    fn steps_of_all(self, rank: usize, chunk: &Range<usize>) -> [NodeSumStep; 3] {
        let of_local = |local: usize| shifted(slice(chunk.len(), self.each, local), chunk.start);
        let own = of_local(rank % self.each);
        let of_node = |node: usize| shifted(slice(own.len(), self.nodes, node), own.start);
        let neighbours = self.neighbours(rank, false);
        let others = || neighbours.ranks.iter().filter(|other| **other != rank);
        let recvs = others().map(|other| (*other, of_local(other % self.each)));
        let share = NodeSumStep::Share {
            sends: without_empty(others().map(|other| (*other, own.clone()))),
            recvs: without_empty(recvs),
        };
        let of_node_ranks = neighbours.round(&|local| vec![of_local(local)]);
        let of_nodes = self.counterparts(rank, true).round(&|node| vec![of_node(node)]);
        [NodeSumStep::Fold(of_node_ranks), NodeSumStep::Fold(of_nodes), share]
    }

    /// Plans the reduction of a part of `len` elements for every rank: rank `r` gets part `r`. The other parts of its
    /// memory are not defined afterwards. For the scratch memory see [`Self::plan_all`].
    pub(crate) fn plan_parts(
        self,
        rank: usize,
        len: usize,
        scratch_max: usize,
    ) -> impl Iterator<Item = NodeSumStep> {
        let chunks = blocks(0..len, (scratch_max / self.world()).max(1));
        chunks.flat_map(move |chunk| {
            let of_rank = |owner: usize| shifted(chunk.clone(), owner * len);
            let of_local = |local: usize| {
                (0..self.nodes).map(|node| of_rank(node * self.each + local)).collect()
            };
            let of_node = |node: usize| vec![of_rank(node * self.each + rank % self.each)];
            let folds = [
                self.neighbours(rank, false).round(&of_local),
                self.counterparts(rank, false).round(&of_node),
            ];
            folds.map(NodeSumStep::Fold)
        })
    }
}

impl Folding {
    /// Plans a round in which the member with each index folds some ranges of the data of all members.
    fn round(&self, ranges_of: &dyn Fn(usize) -> Vec<Range<usize>>) -> ReductionRound {
        let own_ranges = ranges_of(self.own);
        let len = own_ranges.iter().map(Range::len).sum::<usize>();
        let stride = len.next_multiple_of(STRIDE_UNIT);
        let places = own_ranges
            .iter()
            .scan(0, |end, range| {
                let start = *end;
                *end += range.len();
                Some(start..*end)
            })
            .collect::<Vec<_>>();
        let members = || self.ranks.iter().copied().enumerate();
        let own_rank = self.ranks[self.own];
        let receivers = || members().filter(|(_, rank)| self.to_all || *rank == own_rank);
        let ranges = |(index, rank): (usize, usize)| {
            ranges_of(index).into_iter().map(move |range| (rank, range))
        };
        let in_scratch = |(index, rank): (usize, usize)| {
            let places = places.clone().into_iter();
            places.map(move |place| (rank, shifted(place, index * stride)))
        };
        let results = |(_, rank)| places.clone().into_iter().map(move |place| (rank, place));
        ReductionRound {
            sends: without_empty(members().flat_map(ranges)),
            recvs: without_empty(members().flat_map(in_scratch)),
            stride,
            len,
            parts: self.ranks.len(),
            keeps_result: !self.to_all,
            result_sends: without_empty(receivers().flat_map(results)),
            result_recvs: without_empty(receivers().flat_map(ranges)),
        }
    }
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

fn without_empty(pieces: impl Iterator<Item = PeerSlice>) -> Vec<PeerSlice> {
    pieces.filter(|(_, range)| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::runtime::schedule::tree::{Fold, Operand};

    /// Elements with a text as sum, which shows the order of the additions.
    type Numbers = Vec<String>;

    /// Sum of texts in the order of the canonical tree.
    fn tree_sum(parts: &[String]) -> String {
        let fold = Fold::of(parts.len());
        let mut scratch = vec![String::new(); fold.scratch];
        let of = |operand: Operand, scratch: &[String]| match operand {
            Operand::Source(index) => parts[index].clone(),
            Operand::Scratch(index) => scratch[index].clone(),
        };
        for step in &fold.steps {
            scratch[step.into] =
                format!("({}+{})", of(step.left, &scratch), of(step.right, &scratch));
        }
        of(fold.result, &scratch)
    }

    /// Ranges that ranks send or receive, and the memory where they lie.
    struct Side<'a> {
        memory: &'a Numbers,
        pieces: &'a [PeerSlice],
    }

    /// Returns the memory of a receiver after the exchange; pieces between two ranks are matched in their order.
    fn receive(receiver: usize, from: &[Side<'_>], to: &Side<'_>) -> Numbers {
        let mut memory = to.memory.clone();
        for (sender, side) in from.iter().enumerate() {
            let sent = side.pieces.iter().filter(|(peer, _)| *peer == receiver);
            let wanted = to.pieces.iter().filter(|(peer, _)| *peer == sender);
            let (sent, wanted) = (sent.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
            assert_eq!(sent.len(), wanted.len(), "what {sender} sends is received");
            for ((_, from), (_, to)) in sent.into_iter().zip(wanted) {
                memory[to.clone()].clone_from_slice(&side.memory[from.clone()]);
            }
        }
        memory
    }

    fn exchange(from: &[Side<'_>], to: &[Side<'_>]) -> Vec<Numbers> {
        to.iter().enumerate().map(|(receiver, side)| receive(receiver, from, side)).collect()
    }

    fn sides<'a>(memories: &'a [Numbers], pieces: &[&'a [PeerSlice]]) -> Vec<Side<'a>> {
        memories.iter().zip(pieces).map(|(memory, pieces)| Side { memory, pieces }).collect()
    }

    /// Executes the same step of every rank.
    fn execute(steps: &[&NodeSumStep], memories: &[Numbers], scratch_max: usize) -> Vec<Numbers> {
        let rounds = steps.iter().filter_map(|step| match step {
            NodeSumStep::Fold(round) => Some(round),
            NodeSumStep::Share { .. } => None,
        });
        let rounds: Vec<_> = rounds.collect();
        if rounds.is_empty() {
            let of = |step: &&'_ NodeSumStep| match *step {
                NodeSumStep::Share { sends, recvs } => (sends.clone(), recvs.clone()),
                NodeSumStep::Fold(_) => unreachable!("all ranks share"),
            };
            let pieces: Vec<_> = steps.iter().map(of).collect();
            let sends = pieces.iter().map(|(sends, _)| &sends[..]).collect::<Vec<_>>();
            let recvs = pieces.iter().map(|(_, recvs)| &recvs[..]).collect::<Vec<_>>();
            return exchange(&sides(memories, &sends), &sides(memories, &recvs));
        }
        assert_eq!(rounds.len(), steps.len(), "all ranks fold");
        let of = |pieces: fn(&ReductionRound) -> &[PeerSlice]| {
            rounds.iter().map(|round| pieces(round)).collect::<Vec<_>>()
        };
        let empty = rounds
            .iter()
            .map(|round| {
                let scratch = round.parts * round.stride;
                assert!(scratch <= scratch_max + round.parts * STRIDE_UNIT, "{scratch}");
                vec![String::new(); scratch]
            })
            .collect::<Vec<_>>();
        let sends = sides(memories, &of(|round| &round.sends));
        let mut scratch = exchange(&sends, &sides(&empty, &of(|round| &round.recvs)));
        for (scratch, round) in scratch.iter_mut().zip(&rounds) {
            for at in 0..round.len {
                let parts = (0..round.parts).map(|part| scratch[part * round.stride + at].clone());
                scratch[at] = tree_sum(&parts.collect::<Vec<_>>());
            }
        }
        let results = sides(&scratch, &of(|round| &round.result_sends));
        exchange(&results, &sides(memories, &of(|round| &round.result_recvs)))
    }

    /// Executes the plans of all ranks; returns their memory.
    fn run(plans: &[Vec<NodeSumStep>], len: usize, scratch_max: usize) -> Vec<Numbers> {
        let numbers = |rank: usize| (0..len).map(|at| format!("{rank}:{at}")).collect();
        let mut memories: Vec<Numbers> = (0..plans.len()).map(numbers).collect();
        for at in 0..plans[0].len() {
            let steps = plans.iter().map(|plan| &plan[at]).collect::<Vec<_>>();
            memories = execute(&steps, &memories, scratch_max);
        }
        memories
    }

    /// The sum over all ranks of the element at an index.
    fn sum(world: usize, at: usize) -> String {
        tree_sum(&(0..world).map(|rank| format!("{rank}:{at}")).collect::<Vec<_>>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn reductions_over_nodes_have_the_canonical_order(
            nodes in 2usize..6,
            power in 1u32..4,
            len in 0usize..90,
            scratch_max in 1usize..200,
        ) {
            let even = EvenNodes { nodes, each: 1 << power };
            let world = even.world();
            let plans = |plan: &dyn Fn(usize) -> Vec<NodeSumStep>| (0..world).map(plan).collect::<Vec<_>>();
            let all = plans(&|rank| even.plan_all(rank, len, scratch_max).collect());
            let expected = (0..len).map(|at| sum(world, at)).collect::<Vec<_>>();
            prop_assert!(run(&all, len, scratch_max).iter().all(|found| *found == expected));
            let len = len / 8;
            let parts = plans(&|rank| even.plan_parts(rank, len, scratch_max).collect());
            let scratch_max = scratch_max.max(world);
            for (rank, found) in run(&parts, world * len, scratch_max).iter().enumerate() {
                let own = rank * len..(rank + 1) * len;
                let expected = own.clone().map(|at| sum(world, at)).collect::<Vec<_>>();
                prop_assert_eq!(&found[own], &expected[..], "rank {}", rank);
            }
        }
    }

    #[test]
    fn one_rank_of_a_node_sends_its_data_to_another_node() {
        let even = EvenNodes { nodes: 3, each: 4 };
        let between = |steps: Vec<NodeSumStep>, rank: usize| -> usize {
            let pieces = steps.iter().flat_map(|step| match step {
                NodeSumStep::Fold(round) if round.keeps_result => round.sends.clone(),
                NodeSumStep::Fold(round) => [&round.sends[..], &round.result_sends].concat(),
                NodeSumStep::Share { sends, .. } => sends.clone(),
            });
            let to_others = pieces.filter(|(peer, _)| peer / even.each != rank / even.each);
            to_others.map(|(_, range)| range.len()).sum()
        };
        let all = (0..12).map(|rank| between(even.plan_all(rank, 1200, 5000).collect(), rank));
        assert_eq!(all.sum::<usize>(), 2 * 2 * 1200, "twice to two other nodes");
        let parts = (0..12).map(|rank| between(even.plan_parts(rank, 100, 5000).collect(), rank));
        assert_eq!(parts.sum::<usize>(), 2 * 1200);
    }

    #[test]
    fn uneven_nodes_have_no_sums_of_their_own() {
        let nodes = |node_of: &[usize]| {
            let hosts = (0..=*node_of.iter().max().unwrap()).map(|host| host.to_string());
            EvenNodes::of(&Placement::new(hosts.collect(), node_of.to_vec()).unwrap())
        };
        assert_eq!(nodes(&[0, 0, 1, 1]), Some(EvenNodes { nodes: 2, each: 2 }));
        assert_eq!(nodes(&[0, 0, 0, 1, 1, 1]), None, "3 is no power of two");
        assert_eq!(nodes(&[0, 1, 0, 1]), None);
        assert_eq!(nodes(&[0, 0, 1]), None);
        assert_eq!(nodes(&[0, 1]), None, "one rank a node");
        assert_eq!(nodes(&[0, 0]), None, "one node");
    }
}

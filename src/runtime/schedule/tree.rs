//! The canonical tree: the fixed order of all sums.
//!
//! A range of leaves is split after the largest power of two below its length, each part is summed, and
//! the left sum is added to the right one. If `A` is a power of two, the tree over `W · A` lanes is the
//! tree over `W` ranks whose leaves are trees over `A` lanes, so any rank can sum any part. Pure: no I/O,
//! no clock.

use std::ops::Range;

/// Returns the index at which a range of `leaves` (two or more) is split.
pub fn split(leaves: usize) -> usize {
    assert!(2 <= leaves, "a range of one leaf cannot be split");
    leaves.next_power_of_two() / 2
}

/// Operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An input.
    Source(usize),
    /// The result of an earlier step.
    Scratch(usize),
}

/// `scratch[into] = left ∘ right`. `into` may be one of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Scratch index of the result.
    pub into: usize,
    /// Left operand.
    pub left: Operand,
    /// Right operand.
    pub right: Operand,
}

/// Program that reduces its sources in the order of the canonical tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Steps in order of execution.
    pub steps: Vec<Step>,
    /// Operand that contains the final result.
    pub result: Operand,
    /// Number of scratch buffers that the steps use.
    pub scratch: usize,
}

impl Fold {
    /// Creates the program for `leaves`, a subtree of the canonical tree. `source` returns the input that
    /// contains the sum of a whole subtree, or `None` if it must be computed; single leaves must have one.
    pub fn over(leaves: Range<usize>, source: &dyn Fn(&Range<usize>) -> Option<usize>) -> Self {
        let mut fold = Self { steps: Vec::new(), result: Operand::Source(0), scratch: 0 };
        fold.result = fold.emit(leaves, source, 0);
        fold
    }

    /// Creates the program for `count` sources, one for each leaf.
    pub fn of(count: usize) -> Self {
        Self::over(0..count, &|leaves| (leaves.len() == 1).then_some(leaves.start))
    }

    /// Adds the steps for `leaves`; scratch buffers from index `free` on are not in use.
    fn emit(
        &mut self,
        leaves: Range<usize>,
        source: &dyn Fn(&Range<usize>) -> Option<usize>,
        free: usize,
    ) -> Operand {
        if let Some(index) = source(&leaves) {
            return Operand::Source(index);
        }
        let middle = leaves.start + split(leaves.len());
        let left = self.emit(leaves.start..middle, source, free);
        let used = usize::from(matches!(left, Operand::Scratch(_)));
        let right = self.emit(middle..leaves.end, source, free + used);
        self.steps.push(Step { into: free, left, right });
        self.scratch = self.scratch.max(free + 1);
        Operand::Scratch(free)
    }
}

/// Returns the largest subtrees that are entirely on one node, left to right: `(node, leaves)`.
pub fn pieces(node_of: &[usize]) -> Vec<(usize, Range<usize>)> {
    let node_of_all = |leaves: &Range<usize>| {
        let node = node_of[leaves.start];
        node_of[leaves.clone()].iter().all(|other| *other == node).then_some(node)
    };
    let mut pieces = Vec::new();
    if !node_of.is_empty() {
        collect(&node_of_all, 0..node_of.len(), &mut pieces);
    }
    pieces
}

/// Adds the largest subtrees of `leaves` that have one owner; `owner_of` returns the owner of all leaves of a
/// subtree, or `None` if there are several; single leaves must have one.
fn collect(
    owner_of: &dyn Fn(&Range<usize>) -> Option<usize>,
    leaves: Range<usize>,
    pieces: &mut Vec<(usize, Range<usize>)>,
) {
    if let Some(owner) = owner_of(&leaves) {
        return pieces.push((owner, leaves));
    }
    let middle = leaves.start + split(leaves.len());
    collect(owner_of, leaves.start..middle, pieces);
    collect(owner_of, middle..leaves.end, pieces);
}

/// Division of the lanes of a step among ranks: rank `r` has the lanes `r · each..(r + 1) · each`.
///
/// A rank sums its lanes only as far as the canonical tree over all lanes allows: into the largest subtrees
/// that contain no lane of another rank. If `each` is a power of two, that is one sum; otherwise there are at
/// most `2 · log2 each` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Number of ranks, at least 1.
    pub ranks: usize,
    /// Number of lanes of every rank, at least 1.
    pub each: usize,
}

impl Lanes {
    /// Returns the number of lanes of all ranks.
    pub fn count(self) -> usize {
        self.ranks * self.each
    }

    /// Returns the largest subtrees of all lanes that are entirely on one rank, left to right:
    /// `(rank, lanes)`.
    pub fn pieces(self) -> Vec<(usize, Range<usize>)> {
        let rank_of_all = |lanes: &Range<usize>| {
            let (first, last) = (lanes.start / self.each, (lanes.end - 1) / self.each);
            (first == last).then_some(first)
        };
        let mut pieces = Vec::new();
        collect(&rank_of_all, 0..self.count(), &mut pieces);
        pieces
    }

    /// Returns the lanes of each piece of a rank, left to right.
    pub fn pieces_of(self, rank: usize) -> Vec<Range<usize>> {
        let pieces = self.pieces().into_iter();
        pieces.filter(|(owner, _)| *owner == rank).map(|(_, lanes)| lanes).collect()
    }

    /// Returns how a rank makes its pieces with few buffers: element `a` is the number of additions after its
    /// lane `a`. Each of them replaces the last two sums by `older + newer`; after the last lane, the sums are
    /// the pieces. At most `2 · log2 each + 1` sums exist at once.
    pub fn additions_of(self, rank: usize) -> Vec<usize> {
        let mut additions = vec![0; self.each];
        let mut subtrees = self.pieces_of(rank);
        while let Some(lanes) = subtrees.pop() {
            if 1 < lanes.len() {
                additions[lanes.end - 1 - rank * self.each] += 1;
                let middle = lanes.start + split(lanes.len());
                subtrees.extend([lanes.start..middle, middle..lanes.end]);
            }
        }
        additions
    }

    /// Returns the program that reduces all lanes; its sources are the pieces of all ranks, left to right.
    pub fn fold(self) -> Fold {
        let pieces = self.pieces();
        let find = |lanes: &Range<usize>| {
            let at = pieces.binary_search_by_key(&lanes.start, |(_, piece)| piece.start).ok()?;
            (pieces[at].1 == *lanes).then_some(at)
        };
        Fold::over(0..self.count(), &find)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tree by its definition, as text.
    fn show(leaves: Range<usize>) -> String {
        if leaves.len() == 1 {
            return leaves.start.to_string();
        }
        let middle = leaves.start + split(leaves.len());
        format!("({}+{})", show(leaves.start..middle), show(middle..leaves.end))
    }

    /// Runs a fold over texts; the text shows a step that reads a buffer before it is written, or
    /// overwrites one that is still needed.
    fn run(fold: &Fold, sources: &[String]) -> String {
        let mut scratch = vec!["?".to_owned(); fold.scratch];
        let read = |scratch: &[String], operand| match operand {
            Operand::Source(index) => sources[index].clone(),
            Operand::Scratch(index) => std::mem::take(&mut scratch.to_vec()[index]),
        };
        for step in &fold.steps {
            let sum = format!("({}+{})", read(&scratch, step.left), read(&scratch, step.right));
            scratch[step.into] = sum;
        }
        read(&scratch, fold.result)
    }

    fn leaves(count: usize) -> Vec<String> {
        (0..count).map(|leaf| leaf.to_string()).collect()
    }

    #[test]
    fn tree_of_few_leaves_matches_the_definition() {
        assert_eq!(run(&Fold::of(1), &leaves(1)), "0");
        assert_eq!(run(&Fold::of(3), &leaves(3)), "((0+1)+2)");
        assert_eq!(run(&Fold::of(7), &leaves(7)), "(((0+1)+(2+3))+((4+5)+6))");
    }

    #[test]
    fn fold_computes_the_tree_with_few_scratch_buffers() {
        for count in 1..200 {
            let fold = Fold::of(count);
            assert_eq!(run(&fold, &leaves(count)), show(0..count));
            assert!(fold.scratch <= count.ilog2() as usize + 1);
        }
    }

    #[test]
    fn tree_over_lanes_equals_tree_over_ranks() {
        for ranks in 1..40 {
            for accumulate in [1, 2, 4, 8] {
                let inner: Vec<_> =
                    (0..ranks).map(|r| show(r * accumulate..(r + 1) * accumulate)).collect();
                assert_eq!(run(&Fold::of(ranks), &inner), show(0..ranks * accumulate));
            }
        }
    }

    /// For every number of ranks and of lanes: a rank that adds as the plan says has its pieces at the end, and
    /// the fold of all pieces is the tree over all lanes.
    #[test]
    fn pieces_of_lanes_combine_to_the_tree_over_all_lanes() {
        for (ranks, each) in (1..=12).flat_map(|ranks| (1..=40).map(move |each| (ranks, each))) {
            let lanes = Lanes { ranks, each };
            let pieces_max = (2.0 * (each as f64).log2()).max(1.0);
            let mut sources = Vec::new();
            for rank in 0..ranks {
                let mut sums: Vec<String> = Vec::new();
                for (lane, additions) in lanes.additions_of(rank).into_iter().enumerate() {
                    sums.push((rank * each + lane).to_string());
                    assert!(sums.len() as f64 <= pieces_max + 1.0, "{lanes:?}, rank {rank}");
                    for _ in 0..additions {
                        let newer = sums.pop().expect("two sums are added");
                        let older = sums.pop().expect("two sums are added");
                        sums.push(format!("({older}+{newer})"));
                    }
                }
                let pieces = lanes.pieces_of(rank);
                assert!(pieces.len() as f64 <= pieces_max, "{lanes:?}, rank {rank}");
                assert_eq!(sums, pieces.into_iter().map(show).collect::<Vec<_>>());
                sources.extend(sums);
            }
            assert_eq!(run(&lanes.fold(), &sources), show(0..lanes.count()), "{lanes:?}");
        }
    }

    #[test]
    fn rank_with_a_power_of_two_lanes_has_one_piece() {
        assert_eq!(Lanes { ranks: 3, each: 4 }.pieces(), [(0, 0..4), (1, 4..8), (2, 8..12)]);
        let uneven = Lanes { ranks: 3, each: 3 };
        let pieces = [(0, 0..2), (0, 2..3), (1, 3..4), (1, 4..6), (2, 6..8), (2, 8..9)];
        assert_eq!(uneven.pieces(), pieces);
        assert_eq!(uneven.additions_of(0), [0, 1, 0]);
        assert_eq!(uneven.additions_of(1), [0, 0, 1]);
        assert_eq!(Lanes { ranks: 1, each: 3 }.additions_of(0), [0, 1, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Pieces of lanes are those of a placement in which every rank is a node.
        #[test]
        fn pieces_of_lanes_are_pieces_of_a_placement(ranks in 1usize..20, each in 1usize..50) {
            let rank_of: Vec<usize> = (0..ranks * each).map(|lane| lane / each).collect();
            prop_assert_eq!(Lanes { ranks, each }.pieces(), pieces(&rank_of));
        }

        /// For every placement of ranks, even scattered ones: pieces that are summed on their nodes and
        /// then combined are the canonical tree.
        #[test]
        fn tree_pieces_of_any_placement_combine(
            node_of in proptest::collection::vec(0usize..4, 1..40),
        ) {
            let pieces = pieces(&node_of);
            let sums: Vec<_> = pieces.iter().map(|(_, leaves)| show(leaves.clone())).collect();
            let find = |leaves: &Range<usize>| pieces.iter().position(|(_, piece)| piece == leaves);
            let fold = Fold::over(0..node_of.len(), &find);
            prop_assert_eq!(run(&fold, &sums), show(0..node_of.len()));
            for (node, leaves) in pieces {
                prop_assert!(node_of[leaves].iter().all(|n| *n == node));
            }
        }
    }
}

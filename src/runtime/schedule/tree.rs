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
    let mut pieces = Vec::new();
    collect(node_of, 0..node_of.len(), &mut pieces);
    pieces
}

fn collect(node_of: &[usize], leaves: Range<usize>, pieces: &mut Vec<(usize, Range<usize>)>) {
    let Some(&node) = node_of[leaves.clone()].first() else { return };
    if node_of[leaves.clone()].iter().all(|other| *other == node) {
        return pieces.push((node, leaves));
    }
    let middle = leaves.start + split(leaves.len());
    collect(node_of, leaves.start..middle, pieces);
    collect(node_of, middle..leaves.end, pieces);
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

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

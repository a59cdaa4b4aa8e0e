//! Reductions over the windows of a node.

use std::ops::Range;

use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::blocks;
use crate::runtime::schedule::tree::{Fold, Operand, Step};

/// Size in bytes of a scratch buffer: a few of them, and as many bytes of every rank's data, fit a
/// first-level cache.
pub(crate) const BLOCK_BYTES: usize = 2048;

pub(crate) const BLOCK_WORDS: usize = BLOCK_BYTES / 8;

/// Scratch buffers for folding, for any element type.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    words: Vec<u64>,
}

impl Workspace {
    /// Number of elements that are folded at a time.
    pub(crate) const fn block<T: Element>() -> usize {
        BLOCK_BYTES / size_of::<T::Sum>()
    }

    /// Folds sources of `len` elements, at most a block, into the first scratch buffer and returns
    /// it.
    #[inline]
    pub(crate) fn fold<'s, T: Element>(
        &mut self,
        fold: &Fold,
        op: ReduceOp,
        len: usize,
        source: &dyn Fn(usize) -> &'s [T],
    ) -> &mut [T::Sum] {
        self.words.resize(fold.scratch.max(1) * BLOCK_WORDS, 0);
        for step in &fold.steps {
            self.combine(*step, op, len, source);
        }
        let result = &mut bytemuck::cast_slice_mut(&mut self.words)[..len];
        if let Operand::Source(index) = fold.result {
            T::widen(source(index), result);
        }
        result
    }

    fn combine<'s, T: Element>(
        &mut self,
        step: Step,
        op: ReduceOp,
        len: usize,
        source: &dyn Fn(usize) -> &'s [T],
    ) {
        let (before, after) = self.words.split_at_mut((step.into + 1) * BLOCK_WORDS);
        let into = &mut before[step.into * BLOCK_WORDS..];
        let into = &mut bytemuck::cast_slice_mut(into)[..len];
        match (step.left, step.right) {
            (Operand::Source(left), Operand::Source(right)) => {
                T::combine(op, into, source(left), source(right));
            }
            (Operand::Scratch(_), Operand::Source(right)) => {
                T::combine_left(op, into, source(right));
            }
            (Operand::Source(left), Operand::Scratch(_)) => {
                T::combine_right(op, source(left), into);
            }
            // A fold has its left operand in `into` and its right one in the next scratch buffer.
            (Operand::Scratch(_), Operand::Scratch(_)) => {
                T::Sum::combine_left(op, into, &bytemuck::cast_slice(after)[..len]);
            }
        }
    }
}

/// Folds one block of the windows.
#[inline]
pub(crate) fn fold_windows<'w, T: Element>(
    workspace: &'w mut Workspace,
    fold: &Fold,
    op: ReduceOp,
    windows: &[Window<T>],
    block: &Range<usize>,
) -> &'w mut [T::Sum] {
    workspace.fold(fold, op, block.len(), &|index| windows[index].as_slice(block))
}

/// Folds a range of the windows into a target, block by block. The data of a single rank is copied
/// at once.
pub(crate) fn fold_windows_into<T: Element>(
    workspace: &mut Workspace,
    fold: &Fold,
    op: ReduceOp,
    windows: &[Window<T>],
    range: &Range<usize>,
    into: &mut [T::Sum],
) {
    if let Operand::Source(index) = fold.result {
        return T::widen(windows[index].as_slice(range), into);
    }
    for block in blocks(range.clone(), Workspace::block::<T>()) {
        let at = block.start - range.start;
        let sum = fold_windows(workspace, fold, op, windows, &block);
        into[at..at + sum.len()].copy_from_slice(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fold_of_slices_equals_fold_of_elements() {
        let values: Vec<Vec<f32>> = (0..7).map(|rank| vec![0.1 * rank as f32; 5]).collect();
        let sources: Vec<&[f32]> = values.iter().map(Vec::as_slice).collect();
        let mut workspace = Workspace::default();
        let sum = workspace.fold(&Fold::of(7), ReduceOp::Sum, 5, &|rank| sources[rank]).to_vec();
        let v = |rank: usize| values[rank][0];
        let expect = ((v(0) + v(1)) + (v(2) + v(3))) + ((v(4) + v(5)) + v(6));
        assert_eq!(sum, [expect; 5]);
    }
}

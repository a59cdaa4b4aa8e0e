//! Sum of micro-batches in the order of the canonical tree, with few buffers: a binary counter.
//!
//! The counter has one partial sum for each set bit of the number of micro-batches so far; two sums
//! of equal size are added, the older one on the left, as a carry. The remaining sums are added
//! from the right at the end.

use std::ops::Range;

use crate::runtime::dtype::element::{GradientElement, ReduceOp};

/// Running sum of the micro-batches of a step.
#[derive(Debug)]
pub(crate) struct BinaryCounter<T> {
    /// Partial sums `(micro-batches, sum)`, oldest and largest first.
    sums: Vec<(usize, Vec<T>)>,
    /// Unused buffers.
    spare: Vec<Vec<T>>,
    len: usize,
}

impl<T: GradientElement> BinaryCounter<T> {
    pub(crate) fn new(len: usize) -> Self {
        Self { sums: Vec::new(), spare: Vec::new(), len }
    }

    /// Returns a buffer of zeros for a micro-batch.
    pub(crate) fn buffer(&mut self) -> Vec<T> {
        let mut buffer = self.spare.pop().unwrap_or_else(|| vec![T::ZERO; self.len]);
        buffer.fill(T::ZERO);
        buffer
    }

    /// Adds a micro-batch that is not the last.
    pub(crate) fn push(&mut self, mut gradient: Vec<T>) {
        let mut count = 1;
        while let Some((_, sum)) = self.sums.pop_if(|(older, _)| *older == count) {
            T::combine_right(ReduceOp::Sum, &sum, &mut gradient);
            self.spare.push(sum);
            count *= 2;
        }
        self.sums.push((count, gradient));
    }

    /// Adds everything pushed so far to `range` of the last micro-batch.
    pub(crate) fn add_to(&self, range: &Range<usize>, last: &mut [T]) {
        for (_, sum) in self.sums.iter().rev() {
            T::combine_right(ReduceOp::Sum, &sum[range.clone()], last);
        }
    }

    /// Discards all micro-batches.
    pub(crate) fn clear(&mut self) {
        self.spare.extend(self.sums.drain(..).map(|(_, sum)| sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::schedule::tree::split;

    fn tree(values: &[f32]) -> f32 {
        if let [value] = values {
            *value
        } else {
            let (left, right) = values.split_at(split(values.len()));
            tree(left) + tree(right)
        }
    }

    #[test]
    fn counter_sums_in_the_order_of_the_canonical_tree() {
        for count in 1..70usize {
            let values: Vec<f32> = (0..count).map(|i| 1.0 / (3.0 + i as f32)).collect();
            let mut counter = BinaryCounter::new(1);
            for value in &values[..values.len() - 1] {
                let mut buffer = counter.buffer();
                buffer[0] = *value;
                counter.push(buffer);
            }
            let live = counter.sums.len() + counter.spare.len();
            assert!(live <= count.ilog2() as usize + 1, "{live} buffers for {count} micro-batches");
            let mut last = [values[values.len() - 1]];
            counter.add_to(&(0..1), &mut last);
            assert_eq!(last[0].to_bits(), tree(&values).to_bits());
            counter.clear();
        }
    }
}

//! Sum of micro-batches in the order of the canonical tree, with few buffers: a binary counter.
//!
//! The counter has one partial sum for each set bit of the number of micro-batches so far; two sums
//! of equal size are added, the older one on the left, as a carry. The remaining sums are added
//! from the right at the end.

/// Running sum of the micro-batches of a step, in memory of any kind.
#[derive(Debug)]
pub(crate) struct BinaryCounter<M> {
    /// Partial sums `(micro-batches, sum)`, oldest and largest first.
    sums: Vec<(usize, M)>,
    /// Unused buffers.
    spare: Vec<M>,
}

impl<M> BinaryCounter<M> {
    pub(crate) fn new() -> Self {
        Self { sums: Vec::new(), spare: Vec::new() }
    }

    /// Returns an unused buffer with arbitrary contents, if there is one.
    pub(crate) fn take_spare(&mut self) -> Option<M> {
        self.spare.pop()
    }

    /// Keeps a buffer that is not used any more.
    pub(crate) fn keep(&mut self, unused: M) {
        self.spare.push(unused);
    }

    /// Adds a micro-batch that is not the last; `add(older, newer)` replaces `newer` by the sum. The sums are
    /// incomplete after an error.
    pub(crate) fn try_push<E>(
        &mut self,
        mut gradient: M,
        add: impl Fn(&M, &mut M) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut count = 1;
        while let Some((_, sum)) = self.sums.pop_if(|(older, _)| *older == count) {
            add(&sum, &mut gradient)?;
            self.spare.push(sum);
            count *= 2;
        }
        self.sums.push((count, gradient));
        Ok(())
    }

    /// Returns the partial sums, newest first; each is added to the last micro-batch from the left.
    pub(crate) fn sums(&self) -> impl Iterator<Item = &M> {
        self.sums.iter().rev().map(|(_, sum)| sum)
    }

    /// Discards all micro-batches.
    pub(crate) fn clear(&mut self) {
        self.spare.extend(self.sums.drain(..).map(|(_, sum)| sum));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

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
            let mut counter = BinaryCounter::new();
            for value in &values[..values.len() - 1] {
                counter.take_spare();
                let add = |older: &f32, newer: &mut f32| -> Result<(), Infallible> {
                    *newer += *older;
                    Ok(())
                };
                let Ok(()) = counter.try_push(*value, add);
            }
            let live = counter.sums.len() + counter.spare.len();
            assert!(live <= count.ilog2() as usize + 1, "{live} buffers for {count} micro-batches");
            let last = counter.sums().fold(values[values.len() - 1], |last, older| older + last);
            assert_eq!(last.to_bits(), tree(&values).to_bits());
            counter.clear();
        }
    }
}

//! Test data with known reductions, for every type and every rank. Pure.

use crate::runtime::{Bf16, Element, F16, ReduceOp};

/// Period of the data in elements; a prime, so that shifted parts differ.
pub(crate) const PERIOD: usize = 251;
/// Largest number of ranks for which sums of values below 4 fit a byte.
const RANKS_OF_FOUR_MAX: usize = 64;

/// Element type of test data and their reductions.
pub(crate) trait TestElement: Element {
    /// Returns the value nearest to `whole`; integers wrap.
    fn from_integer(whole: u64) -> Self;

    /// Returns the mean of `ranks` values with this sum, rounded as a group rounds it.
    fn from_mean(sum: u64, ranks: u64) -> Self;
}

macro_rules! float {
    ($type:ident) => {
        impl TestElement for $type {
            fn from_integer(whole: u64) -> Self {
                whole as Self
            }

            fn from_mean(sum: u64, ranks: u64) -> Self {
                sum as Self * (1.0 / ranks as Self)
            }
        }
    };
}

macro_rules! half {
    ($type:ident) => {
        impl TestElement for $type {
            fn from_integer(whole: u64) -> Self {
                Self::from_f32(whole as f32)
            }

            fn from_mean(sum: u64, ranks: u64) -> Self {
                Self::from_f32(f32::from_mean(sum, ranks))
            }
        }
    };
}

macro_rules! integer {
    ($type:ident) => {
        impl TestElement for $type {
            fn from_integer(whole: u64) -> Self {
                whole as Self
            }

            fn from_mean(sum: u64, ranks: u64) -> Self {
                // Sums wrap first; the division then rounds towards zero.
                (i128::from(sum as Self) / i128::from(ranks)) as Self
            }
        }
    };
}

float!(f32);
float!(f64);
half!(F16);
half!(Bf16);
integer!(i32);
integer!(i64);
integer!(u8);

/// Test data of all ranks, and their reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPattern {
    /// Number of ranks.
    pub(crate) world: usize,
    /// Reduction; `None` for operations that only move data.
    pub(crate) reduce: Option<ReduceOp>,
}

impl DataPattern {
    /// Returns the value of a rank at a position.
    pub(crate) fn value(self, rank: usize, position: usize) -> u64 {
        let position = position % PERIOD;
        let whole = match self.reduce {
            // A value below 251, which is exact in every type.
            None => (position * 7 + rank * 13) % PERIOD,
            // One rank has 2 and the others 1, so that every product is 2.
            Some(ReduceOp::Prod) => 1 + usize::from(position % self.world == rank),
            Some(ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Min | ReduceOp::Max) => {
                let levels = if self.world <= RANKS_OF_FOUR_MAX { 4 } else { 2 };
                (position * 5 + rank * 3 + position / 4) % levels
            }
        };
        whole as u64
    }

    /// Returns the data of a rank for one period, beginning at position `start`.
    pub(crate) fn period<T: TestElement>(self, rank: usize, start: usize) -> Vec<T> {
        (start..start + PERIOD)
            .map(|position| T::from_integer(self.value(rank, position)))
            .collect()
    }

    /// Returns the reduction over all ranks for one period, beginning at position `start`.
    pub(crate) fn reduced_period<T: TestElement>(self, start: usize) -> Vec<T> {
        (start..start + PERIOD).map(|position| self.reduced(position)).collect()
    }

    fn reduced<T: TestElement>(self, position: usize) -> T {
        let values = (0..self.world).map(|rank| self.value(rank, position));
        match self.reduce.unwrap_or(ReduceOp::Sum) {
            ReduceOp::Sum => T::from_integer(values.sum()),
            ReduceOp::Avg => T::from_mean(values.sum(), self.world as u64),
            ReduceOp::Prod => T::from_integer(values.product()),
            ReduceOp::Min => T::from_integer(values.min().unwrap_or(0)),
            ReduceOp::Max => T::from_integer(values.max().unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_data_differs_from_rank_to_rank() {
        for reduce in [None, Some(ReduceOp::Sum), Some(ReduceOp::Prod), Some(ReduceOp::Max)] {
            let pattern = DataPattern { world: 3, reduce };
            let [first, second, third] = [0, 1, 2].map(|rank| pattern.period::<i32>(rank, 0));
            assert!(first != second && second != third && first != third, "{reduce:?}");
        }
    }

    #[test]
    fn test_data_reductions_are_exact_in_small_types() {
        for world in [1, 2, 64, 65, 250] {
            let pattern = DataPattern { world, reduce: Some(ReduceOp::Sum) };
            for position in 0..PERIOD {
                let sum: u64 = (0..world).map(|rank| pattern.value(rank, position)).sum();
                assert!(sum < 256, "{world} ranks");
                assert_eq!(pattern.reduced::<Bf16>(position), Bf16::from_f32(sum as f32));
            }
            let product = DataPattern { world, reduce: Some(ReduceOp::Prod) };
            assert!((0..PERIOD).all(|position| product.reduced::<u8>(position) == 2));
        }
    }
}

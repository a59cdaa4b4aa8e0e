//! The identity of the batch sizes: train = micro-batch × accumulation × world size.

use crate::config::training::BatchSizes;

/// The batch sizes that a file gives; `None`: not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchKeys {
    /// `train_batch_size`.
    pub train: Option<i64>,
    /// `train_micro_batch_size_per_gpu`.
    pub micro: Option<i64>,
    /// `gradient_accumulation_steps`.
    pub accumulation: Option<i64>,
}

/// Which of DeepSpeed's checks failed, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// Neither of the two batch sizes is given.
    Missing,
    /// The batch of a step is below 1.
    Train(i64),
    /// The micro-batch is below 1: given so, or because the batch is too small.
    Micro(i64),
    /// The accumulation is below 1, likewise.
    Accumulation(i64),
    /// The product is another number.
    Identity {
        /// The batch of a step.
        train: i64,
        /// The micro-batch.
        micro: i64,
        /// Micro-batches of a rank in a step.
        accumulation: i64,
    },
}

/// Completes the batch sizes for a number of ranks (at least 1) as DeepSpeed does, by whole divisions, and
/// checks them.
///
/// # Errors
/// If a size is missing or below 1, or the product is another number.
pub fn resolve_batch(keys: BatchKeys, world_size: u64) -> Result<BatchSizes, BatchError> {
    let ranks = i64::try_from(world_size).unwrap_or(i64::MAX);
    let BatchKeys { train, micro, accumulation } = keys;
    // DeepSpeed divides before it checks; a division by 0 is the error of that value.
    not_below_1(train, BatchError::Train)?;
    not_below_1(micro, BatchError::Micro)?;
    not_below_1(accumulation, BatchError::Accumulation)?;
    let (train, micro, accumulation) = match (train, micro, accumulation) {
        (Some(train), Some(micro), Some(accumulation)) => (train, micro, accumulation),
        (Some(train), Some(micro), None) => (train, micro, train / micro / ranks),
        (Some(train), None, Some(accumulation)) => {
            (train, train / ranks / accumulation, accumulation)
        }
        (None, Some(micro), accumulation) => {
            let accumulation = accumulation.unwrap_or(1);
            (product(micro, accumulation, ranks), micro, accumulation)
        }
        (Some(train), None, None) => (train, train / ranks, 1),
        (None, None, _) => return Err(BatchError::Missing),
    };
    not_below_1(Some(micro), BatchError::Micro)?;
    not_below_1(Some(accumulation), BatchError::Accumulation)?;
    if train != product(micro, accumulation, ranks) {
        return Err(BatchError::Identity { train, micro, accumulation });
    }
    let count = |number: i64| number.unsigned_abs();
    Ok(BatchSizes { train: count(train), micro: count(micro), accumulation: count(accumulation) })
}

fn not_below_1(value: Option<i64>, error: fn(i64) -> BatchError) -> Result<(), BatchError> {
    value.filter(|value| *value < 1).map_or(Ok(()), |value| Err(error(value)))
}

fn product(micro: i64, accumulation: i64, ranks: i64) -> i64 {
    micro.saturating_mul(accumulation).saturating_mul(ranks)
}

/// Largest number of legal world sizes that is of use in a message.
const WORLD_SIZES_MAX: usize = 64;

/// The numbers of ranks for which the sizes are correct, in ascending order; empty if there is none, or if
/// every number is.
pub fn legal_world_sizes(keys: BatchKeys) -> Vec<u64> {
    let Some(train) = keys.train.filter(|train| 0 < *train) else { return Vec::new() };
    let part = keys.micro.unwrap_or(1).saturating_mul(keys.accumulation.unwrap_or(1));
    if part < 1 || train % part != 0 {
        return Vec::new();
    }
    let ranks = (train / part).unsigned_abs();
    if keys.micro.is_some() && keys.accumulation.is_some() {
        return vec![ranks];
    }
    divisors(ranks)
}

/// The divisors of a number in ascending order, at most [`WORLD_SIZES_MAX`] of them.
fn divisors(number: u64) -> Vec<u64> {
    let mut small = Vec::new();
    let mut large = Vec::new();
    let mut divisor = 1;
    while divisor * divisor <= number && divisor < 1 << 20 {
        if number.is_multiple_of(divisor) {
            small.push(divisor);
            if divisor * divisor != number {
                large.push(number / divisor);
            }
        }
        divisor += 1;
    }
    small.extend(large.into_iter().rev());
    small.truncate(WORLD_SIZES_MAX);
    small
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(train: i64, micro: i64, accumulation: i64) -> BatchKeys {
        let given = |value: i64| (value != ABSENT).then_some(value);
        BatchKeys { train: given(train), micro: given(micro), accumulation: given(accumulation) }
    }

    const ABSENT: i64 = i64::MIN;

    /// Results of DeepSpeed 0.19.8.
    #[test]
    fn sizes_are_those_of_deepspeed() {
        #[track_caller]
        fn check(sizes: [i64; 3], world_size: u64, expect: Result<[u64; 3], BatchError>) {
            let found = resolve_batch(keys(sizes[0], sizes[1], sizes[2]), world_size);
            let found = found.map(|found| [found.train, found.micro, found.accumulation]);
            assert_eq!(found, expect, "{sizes:?} on {world_size} ranks");
        }
        let identity =
            |train, micro, accumulation| Err(BatchError::Identity { train, micro, accumulation });
        for (ranks, micro) in [(1, 8), (2, 4), (8, 1)] {
            check([8, ABSENT, 1], ranks, Ok([8, micro, 1]));
        }
        check([8, ABSENT, 1], 3, identity(8, 2, 1));
        check([8, ABSENT, 1], 16, Err(BatchError::Micro(0)));
        check([32, 4, ABSENT], 2, Ok([32, 4, 4]));
        check([32, 4, ABSENT], 3, identity(32, 4, 2));
        check([2, 4, ABSENT], 1, Err(BatchError::Accumulation(0)));
        check([ABSENT, 2, 4], 3, Ok([24, 2, 4]));
        check([ABSENT, 2, ABSENT], 8, Ok([16, 2, 1]));
        check([16, ABSENT, ABSENT], 4, Ok([16, 4, 1]));
        check([64, 2, 4], 8, Ok([64, 2, 4]));
        check([64, 2, 4], 4, identity(64, 2, 4));
        check([ABSENT, ABSENT, 2], 1, Err(BatchError::Missing));
        check([ABSENT, ABSENT, ABSENT], 1, Err(BatchError::Missing));
        check([-8, ABSENT, ABSENT], 1, Err(BatchError::Train(-8)));
        check([8, 0, ABSENT], 1, Err(BatchError::Micro(0)));
        check([8, ABSENT, 0], 1, Err(BatchError::Accumulation(0)));
        check([8, 3, 2], 1, identity(8, 3, 2));
    }

    #[test]
    fn legal_world_sizes_are_divisors() {
        assert_eq!(legal_world_sizes(keys(8, ABSENT, 1)), [1, 2, 4, 8]);
        assert_eq!(legal_world_sizes(keys(64, 2, 4)), [8]);
        assert_eq!(legal_world_sizes(keys(32, 4, ABSENT)), [1, 2, 4, 8]);
        assert_eq!(legal_world_sizes(keys(32, 5, ABSENT)), [0; 0]);
        assert_eq!(legal_world_sizes(keys(ABSENT, 4, ABSENT)), [0; 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn legal_world_sizes_resolve_and_others_do_not(
            train in 1i64..300,
            micro in proptest::option::of(1i64..9),
            accumulation in proptest::option::of(1i64..9),
        ) {
            let keys = BatchKeys { train: Some(train), micro, accumulation };
            let legal = legal_world_sizes(keys);
            for ranks in 1..300 {
                let resolved = resolve_batch(keys, ranks);
                prop_assert_eq!(resolved.is_ok(), legal.contains(&ranks), "{:?} {}", keys, ranks);
                if let Ok(sizes) = resolved {
                    prop_assert_eq!(sizes.train, sizes.micro * sizes.accumulation * ranks);
                }
            }
        }

        #[test]
        fn any_numbers_give_sizes_or_an_error(
            train: Option<i64>,
            micro: Option<i64>,
            accumulation: Option<i64>,
            ranks in 1u64..,
        ) {
            let keys = BatchKeys { train, micro, accumulation };
            if let Ok(sizes) = resolve_batch(keys, ranks) {
                prop_assert!(0 < sizes.train && 0 < sizes.micro && 0 < sizes.accumulation);
            }
            legal_world_sizes(keys);
        }
    }
}

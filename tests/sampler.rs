//! Goal: the rows of every worker are exactly those of torch's `DistributedSampler`.
//! Method: vectors made with torch; properties of every split.

use proptest::prelude::*;
use remuda::runtime::sampler::{DistributedSampler, SamplerOptions, randperm};

const KEEP: SamplerOptions = SamplerOptions { shuffle: true, seed: 0, drop_last: false };
const DROP: SamplerOptions = SamplerOptions { drop_last: true, ..KEEP };
const PLAIN: SamplerOptions = SamplerOptions { shuffle: false, ..KEEP };

/// Checks the rows of every replica; `|` separates replicas.
#[track_caller]
fn check(rows: usize, replicas: usize, options: SamplerOptions, epoch: u64, expect: &str) {
    let show = |rank| {
        let mut sampler = DistributedSampler::new(rows, replicas, rank, options);
        sampler.set_epoch(epoch);
        assert_eq!(sampler.indices().len(), sampler.len());
        sampler.indices().map(|row| row.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((0..replicas).map(show).collect::<Vec<_>>().join(" | "), expect);
}

#[test]
fn permutations_match_torch() {
    assert_eq!(randperm(10, 0), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
    assert!(randperm(0, 0).is_empty());
    assert_eq!(randperm(1, 0), [0]);
}

#[test]
fn indices_match_torch() {
    check(10, 3, KEEP, 0, "4 5 0 2 | 1 3 8 4 | 7 9 6 1");
    check(10, 3, DROP, 0, "4 5 0 | 1 3 8 | 7 9 6");
    check(10, 4, PLAIN, 0, "0 4 8 | 1 5 9 | 2 6 0 | 3 7 1");
    check(10, 4, DROP, 0, "4 3 | 1 9 | 7 0 | 5 8");
    check(2, 5, PLAIN, 0, "0 | 1 | 0 | 1 | 0");
    check(2, 5, DROP, 0, " |  |  |  | ");
    check(0, 2, KEEP, 0, " | ");
}

#[test]
fn every_epoch_has_a_different_order() {
    let mut sampler = DistributedSampler::new(10, 3, 0, KEEP);
    sampler.set_epoch(1);
    assert_eq!(sampler.indices().collect::<Vec<_>>(), [5, 2, 9, 4]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_row_is_assigned(rows in 0usize..300, replicas in 1usize..12, seed in 0u64..1 << 40) {
        let options = SamplerOptions { seed, ..KEEP };
        let mut counts = vec![0; rows];
        for rank in 0..replicas {
            for row in DistributedSampler::new(rows, replicas, rank, options).indices() {
                counts[row] += 1;
            }
        }
        let (least, most) = (counts.iter().min(), counts.iter().max());
        prop_assert!(counts.iter().all(|count| 1 <= *count));
        prop_assert!(rows < replicas || most <= Some(&(least.copied().unwrap_or(0) + 1)));
    }
}

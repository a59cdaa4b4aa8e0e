//! Test data, reductions by their definition, and ranks that are threads.

use std::fmt::Debug;
use std::thread;

use remuda::runtime::{Bf16, Element, F16, Group, ReduceOp};

/// Number of elements that is larger than any round.
pub(crate) const LARGE: usize = 300_001;
pub(crate) const SIZES: [usize; 5] = [0, 1, 7, 1023, 5000];
pub(crate) const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

/// Element type with test data.
pub(crate) trait Sample: Element {
    fn sample(seed: u64) -> Self;
    /// Reduction of the ranks' values by its definition.
    fn reduce(op: ReduceOp, ranks: &[Self]) -> Self;
}

macro_rules! sample {
    ($type:ident, $sample:expr, $add:expr, $mul:expr, $mean:expr) => {
        impl Sample for $type {
            fn sample(seed: u64) -> Self {
                let sample: fn(u64) -> $type = $sample;
                sample(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13)
            }

            fn reduce(op: ReduceOp, ranks: &[Self]) -> Self {
                let mean: fn($type, usize) -> $type = $mean;
                match op {
                    ReduceOp::Sum => tree(ranks, &$add),
                    ReduceOp::Avg => mean(tree(ranks, &$add), ranks.len()),
                    ReduceOp::Prod => tree(ranks, &$mul),
                    ReduceOp::Min => tree(ranks, &|l, r| if r < l { r } else { l }),
                    ReduceOp::Max => tree(ranks, &|l, r| if l < r { r } else { l }),
                }
            }
        }
    };
}

macro_rules! sample_float {
    ($type:ident) => {
        sample!(
            $type,
            |bits| {
                let scale = (((bits % 20) as i32) - 10) as $type;
                ((bits % 9973) as $type - 5000.0) * scale.exp2()
            },
            |l, r| l + r,
            |l, r| l * r,
            |sum, ranks| sum * (1.0 / ranks as $type)
        );
    };
}

macro_rules! sample_integer {
    ($type:ident) => {
        sample!(
            $type,
            |bits| bits as $type,
            $type::wrapping_add,
            $type::wrapping_mul,
            |sum, ranks| (i128::from(sum) / ranks as i128) as $type
        );
    };
}

/// 16-bit floats are summed as `f32` and rounded once.
macro_rules! sample_half {
    ($type:ident) => {
        impl Sample for $type {
            fn sample(seed: u64) -> Self {
                Self::from_f32(f32::sample(seed))
            }

            fn reduce(op: ReduceOp, ranks: &[Self]) -> Self {
                let ranks: Vec<f32> = ranks.iter().map(|value| value.to_f32()).collect();
                Self::from_f32(f32::reduce(op, &ranks))
            }
        }
    };
}

sample_half!(F16);
sample_half!(Bf16);
sample_float!(f32);
sample_float!(f64);
sample_integer!(i32);
sample_integer!(i64);
sample_integer!(u8);

pub(crate) fn values<T: Sample>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|at| T::sample((rank * 1_000_003 + at + 1) as u64)).collect()
}

/// Canonical tree by its definition: split after the largest power of two below the length, left
/// operand first.
pub(crate) fn tree<T: Copy>(ranks: &[T], combine: &dyn Fn(T, T) -> T) -> T {
    if let [one] = ranks {
        return *one;
    }
    let (left, right) = ranks.split_at(ranks.len().next_power_of_two() / 2);
    combine(tree(left, combine), tree(right, combine))
}

pub(crate) fn reduced<T: Sample>(op: ReduceOp, world: usize, count: usize) -> Vec<T> {
    let all: Vec<Vec<T>> = (0..world).map(|rank| values(rank, count)).collect();
    let column = |at: usize| all.iter().map(|values| values[at]).collect::<Vec<T>>();
    (0..count).map(|at| T::reduce(op, &column(at))).collect()
}

/// Runs `f` on every rank, in threads, and returns the results.
pub(crate) fn on_ranks<V: Send>(groups: Vec<Group>, f: impl Fn(&Group) -> V + Sync) -> Vec<V> {
    thread::scope(|scope| {
        let f = &f;
        let ranks: Vec<_> =
            groups.into_iter().map(|group| scope.spawn(move || f(&group))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// Asserts equal bits; floats are compared as bytes, so that NaN equals itself and -0 does not equal 0.
#[track_caller]
pub(crate) fn assert_bits<T: Element>(found: &[T], expect: &[T], what: &dyn Debug) {
    let (found, expect): (&[u8], &[u8]) =
        (bytemuck::cast_slice(found), bytemuck::cast_slice(expect));
    assert!(found == expect, "{what:?}");
}

//! Element types and reductions.
//!
//! Every kernel combines position by position, left operand first, so that the instruction set
//! cannot change a bit of the result.

#![expect(
    clippy::inline_always,
    reason = "a function has the instruction set of a loop only if it is inlined into it"
)]

use std::fmt;

use crate::os::cpu::simd::vectorized;
use crate::runtime::dtype::half::{Bf16, F16, HalfFloat};

mod sealed {
    pub trait Sealed {}
}

/// Element type on the wire and in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// 32-bit float.
    F32 = 1,
    /// 64-bit float.
    F64 = 2,
    /// 32-bit integer.
    I32 = 3,
    /// 64-bit integer.
    I64 = 4,
    /// Byte.
    U8 = 5,
    /// 16-bit float of IEEE 754.
    F16 = 6,
    /// Upper half of a 32-bit float.
    Bf16 = 7,
}

impl Dtype {
    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::F32, Self::F64, Self::I32, Self::I64, Self::U8, Self::F16, Self::Bf16]
            .into_iter()
            .find(|dtype| *dtype as u8 == code)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

/// Reduction that combines the elements of several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum, in the order of the canonical tree; integers wrap.
    Sum = 1,
    /// Product; integers wrap.
    Prod = 2,
    /// Smallest; NaN if any rank has NaN.
    Min = 3,
    /// Largest; NaN if any rank has NaN.
    Max = 4,
    /// Sum that is multiplied once by 1/ranks; integers are divided and rounded towards zero.
    Avg = 5,
}

impl ReduceOp {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg]
            .into_iter()
            .find(|op| *op as u8 == code)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        })
    }
}

/// Order in which the elements of several ranks are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ReduceOrder {
    /// Canonical [`tree`](crate::runtime::schedule::tree): the same bits for every placement of the ranks.
    #[default]
    Canonical = 0,
    /// Any order: the same bits on all ranks of a run, but different bits for a different placement.
    /// All-reduces use a ring of nodes, so each rank communicates with two others only.
    Any = 1,
}

impl ReduceOrder {
    /// All orders.
    pub const ALL: [Self; 2] = [Self::Canonical, Self::Any];

    /// Returns the name of the order, such as `canonical`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Canonical => "canonical",
            Self::Any => "any",
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|order| *order as u8 == code)
    }
}

impl fmt::Display for ReduceOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number type that groups can send and reduce: `f32 f64 F16 Bf16 i32 i64 u8`.
pub trait Element:
    sealed::Sealed + bytemuck::Pod + PartialEq + fmt::Debug + Send + Sync + 'static
{
    /// Identifier of the type in messages.
    const DTYPE: Dtype;

    /// Type in which values are combined; the result is rounded to the element type once, at the end.
    /// `f32` for 16-bit floats, the type itself for all others.
    type Sum: Element<Sum = Self::Sum>;

    /// `out[i] = left[i] ∘ right[i]`.
    fn combine(op: ReduceOp, out: &mut [Self::Sum], left: &[Self], right: &[Self]);

    /// `left[i] = left[i] ∘ right[i]`.
    fn combine_left(op: ReduceOp, left: &mut [Self::Sum], right: &[Self]);

    /// `right[i] = left[i] ∘ right[i]`.
    fn combine_right(op: ReduceOp, left: &[Self], right: &mut [Self::Sum]);

    /// `sums[i] = values[i]`.
    fn widen(values: &[Self], sums: &mut [Self::Sum]);

    /// Returns the sums, rounded to this type; `buffer` is used if that is a different type.
    fn narrow<'a>(sums: &'a [Self::Sum], buffer: &'a mut Vec<Self>) -> &'a [Self];

    /// Divides every value, a sum over `ranks` ranks, to get the mean.
    fn divide(values: &mut [Self], ranks: u64);
}

/// Element type of gradients: `f32` and `f64`.
pub trait GradientElement: Element<Sum = Self> + PartialOrd {
    /// Zero, the value of a gradient before the first micro-batch.
    const ZERO: Self;

    /// Rounds to the nearest value of this type.
    fn from_f64(value: f64) -> Self;

    /// Converts exactly.
    fn to_f64(self) -> f64;

    /// `self + other`.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// `self × other`.
    #[must_use]
    fn times(self, other: Self) -> Self;

    /// The non-negative square root.
    #[must_use]
    fn square_root(self) -> Self;
}

#[inline(always)]
fn zip_into<T: Copy, S>(out: &mut [S], left: &[T], right: &[T], f: impl Fn(T, T) -> S) {
    debug_assert!(out.len() == left.len() && out.len() == right.len());
    for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
        *out = f(*left, *right);
    }
}

#[inline(always)]
fn zip_left<T: Copy, S: Copy>(left: &mut [S], right: &[T], f: impl Fn(S, T) -> S) {
    debug_assert_eq!(left.len(), right.len());
    for (left, right) in left.iter_mut().zip(right) {
        *left = f(*left, *right);
    }
}

#[inline(always)]
fn zip_right<T: Copy, S: Copy>(left: &[T], right: &mut [S], f: impl Fn(T, S) -> S) {
    debug_assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        *right = f(*left, *right);
    }
}

#[expect(clippy::eq_op, reason = "NaN does not equal itself, and is the result")]
#[inline(always)]
fn smaller<T: PartialOrd>(left: T, right: T) -> T {
    if right < left || right != right { right } else { left }
}

#[expect(clippy::eq_op, reason = "as above")]
#[inline(always)]
fn larger<T: PartialOrd>(left: T, right: T) -> T {
    if left < right || right != right { right } else { left }
}

/// Runs `$kernel(args…, f)` with the function of `$op`, in the version for this processor, so that both
/// choices are made outside the loop.
macro_rules! dispatch {
    ($op:expr, $add:expr, $mul:expr, $kernel:ident($($arg:expr),*)) => {
        match $op {
            ReduceOp::Sum | ReduceOp::Avg => vectorized(|| $kernel($($arg,)* $add)),
            ReduceOp::Prod => vectorized(|| $kernel($($arg,)* $mul)),
            ReduceOp::Min => vectorized(|| $kernel($($arg,)* smaller)),
            ReduceOp::Max => vectorized(|| $kernel($($arg,)* larger)),
        }
    };
}

macro_rules! element {
    ($type:ty, $dtype:ident, $add:expr, $mul:expr, $divide:expr) => {
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            type Sum = Self;

            fn combine(op: ReduceOp, out: &mut [Self], left: &[Self], right: &[Self]) {
                dispatch!(op, $add, $mul, zip_into(out, left, right));
            }

            fn combine_left(op: ReduceOp, left: &mut [Self], right: &[Self]) {
                dispatch!(op, $add, $mul, zip_left(left, right));
            }

            fn combine_right(op: ReduceOp, left: &[Self], right: &mut [Self]) {
                dispatch!(op, $add, $mul, zip_right(left, right));
            }

            fn widen(values: &[Self], sums: &mut [Self]) {
                sums.copy_from_slice(values);
            }

            fn narrow<'a>(sums: &'a [Self], _buffer: &'a mut Vec<Self>) -> &'a [Self] {
                sums
            }

            fn divide(values: &mut [Self], ranks: u64) {
                let divide: fn(&mut [Self], u64) = $divide;
                divide(values, ranks);
            }
        }
    };
}

macro_rules! float {
    ($type:ident, $dtype:ident) => {
        element!($type, $dtype, |l, r| l + r, |l, r| l * r, |values, ranks| {
            // One rounding of 1/ranks and one per element, for any number of ranks.
            let factor = 1.0 / ranks as $type;
            vectorized(|| values.iter_mut().for_each(|value| *value *= factor));
        });

        impl GradientElement for $type {
            const ZERO: Self = 0.0;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn square_root(self) -> Self {
                self.sqrt()
            }
        }
    };
}

macro_rules! integer {
    ($type:ident, $dtype:ident) => {
        element!($type, $dtype, $type::wrapping_add, $type::wrapping_mul, |values, ranks| {
            // In 128 bits, because the number of ranks may exceed the range of the type.
            for value in values.iter_mut() {
                *value = (i128::from(*value) / i128::from(ranks)) as $type;
            }
        });
    };
}

/// A 16-bit float, combined as `f32`.
macro_rules! half {
    ($type:ident) => {
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const DTYPE: Dtype = Dtype::$type;
            type Sum = f32;

            fn combine(op: ReduceOp, out: &mut [f32], left: &[Self], right: &[Self]) {
                dispatch!(op, |l, r| l + r, |l, r| l * r, half_into(out, left, right));
            }

            fn combine_left(op: ReduceOp, left: &mut [f32], right: &[Self]) {
                dispatch!(op, |l, r| l + r, |l, r| l * r, half_left(left, right));
            }

            fn combine_right(op: ReduceOp, left: &[Self], right: &mut [f32]) {
                dispatch!(op, |l, r| l + r, |l, r| l * r, half_right(left, right));
            }

            fn widen(values: &[Self], sums: &mut [f32]) {
                let sums = sums.iter_mut().zip(values);
                vectorized(|| sums.for_each(|(sum, value)| *sum = value.widen()));
            }

            fn narrow<'a>(sums: &'a [f32], buffer: &'a mut Vec<Self>) -> &'a [Self] {
                buffer.resize(sums.len(), Self::default());
                let values = buffer.iter_mut().zip(sums);
                vectorized(|| values.for_each(|(value, sum)| *value = Self::round(*sum)));
                buffer
            }

            fn divide(values: &mut [Self], ranks: u64) {
                let factor = 1.0 / ranks as f32;
                let scaled = |value: &Self| Self::round(value.widen() * factor);
                vectorized(|| values.iter_mut().for_each(|value| *value = scaled(value)));
            }
        }
    };
}

#[inline(always)]
fn half_into<T: HalfFloat>(out: &mut [f32], left: &[T], right: &[T], f: impl Fn(f32, f32) -> f32) {
    zip_into(out, left, right, |l, r| f(l.widen(), r.widen()));
}

#[inline(always)]
fn half_left<T: HalfFloat>(left: &mut [f32], right: &[T], f: impl Fn(f32, f32) -> f32) {
    zip_left(left, right, |l, r| f(l, r.widen()));
}

#[inline(always)]
fn half_right<T: HalfFloat>(left: &[T], right: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    zip_right(left, right, |l, r| f(l.widen(), r));
}

half!(F16);
half!(Bf16);
float!(f32, F32);
float!(f64, F64);
integer!(i32, I32);
integer!(i64, I64);
integer!(u8, U8);

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these results are exact")]
mod tests {
    use super::*;
    use crate::os::cpu::simd::tests::at_every_level;

    #[track_caller]
    fn check<T: Element<Sum = T>>(op: ReduceOp, left: &[T], right: &[T], expect: &[T]) {
        let mut out = left.to_vec();
        T::combine(op, &mut out, left, right);
        assert_eq!(out, expect, "{op} into a third slice");
        let mut out = left.to_vec();
        T::combine_left(op, &mut out, right);
        assert_eq!(out, expect, "{op} into the left operand");
        let mut out = right.to_vec();
        T::combine_right(op, left, &mut out);
        assert_eq!(out, expect, "{op} into the right operand");
    }

    #[test]
    fn reduce_ops_match_their_definition() {
        check(ReduceOp::Sum, &[1.5f32, -1.0], &[2.0, 1.0], &[3.5, 0.0]);
        check(ReduceOp::Prod, &[1.5f64, -1.0], &[2.0, 1.0], &[3.0, -1.0]);
        check(ReduceOp::Min, &[3, -7], &[2, 5], &[2, -7]);
        check(ReduceOp::Max, &[3i64, -7], &[2, 5], &[3, 5]);
        check(ReduceOp::Sum, &[250u8], &[10], &[4]);
        check(ReduceOp::Prod, &[i32::MAX], &[2], &[-2]);
    }

    /// Results of all kernels for an input, as bytes.
    fn kernel_results<T: Element>(bits: &[u8]) -> Vec<u8> {
        let values: Vec<T> =
            bits.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        let (left, right) = values.split_at(values.len() / 2);
        let mut results = Vec::new();
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
            let zeros = vec![<T::Sum as bytemuck::Zeroable>::zeroed(); left.len()];
            let (mut out, mut wide) = (zeros.clone(), zeros);
            T::combine(op, &mut out, left, &right[..left.len()]);
            T::widen(left, &mut wide);
            T::combine_left(op, &mut wide, &right[..left.len()]);
            T::combine_right(op, left, &mut out);
            T::Sum::divide(&mut out, 3);
            results.extend_from_slice(bytemuck::cast_slice(T::narrow(&out, &mut Vec::new())));
            results.extend_from_slice(bytemuck::cast_slice(&wide));
        }
        let mut means = left.to_vec();
        T::divide(&mut means, 7);
        results.extend_from_slice(bytemuck::cast_slice(&means));
        results
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn kernels_give_the_same_bits_on_every_processor(
            bits in proptest::collection::vec(proptest::num::u8::ANY, 1100..1200),
        ) {
            let each = [
                kernel_results::<f32>, kernel_results::<f64>, kernel_results::<F16>,
                kernel_results::<Bf16>, kernel_results::<i32>, kernel_results::<i64>,
                kernel_results::<u8>,
            ];
            for kernel_results in each {
                let found = at_every_level(|| kernel_results(&bits));
                proptest::prop_assert!(found.iter().all(|bytes| *bytes == found[0]));
            }
        }
    }

    #[test]
    fn integer_mean_rounds_towards_zero() {
        let mut values = [7, -7];
        i32::divide(&mut values, 2);
        assert_eq!(values, [3, -3]);
        let mut values = [1.0f32];
        f32::divide(&mut values, 3);
        assert_eq!(values, [1.0 / 3.0]);
    }
}

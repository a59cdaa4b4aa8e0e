//! Floating-point types of the models: one trait for `f32` and `f64`, so that finite differences in
//! double precision check the same formulas that train in single precision.

use std::fmt::Display;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::runtime::GradientElement;

/// Floating-point type of the models.
///
/// `a * b + c` is never fused into one rounding, so element-wise code gives the same bits on every SIMD
/// width.
pub trait ModelFloat:
    GradientElement
    + Display
    + Default
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
{
    /// 1.
    const ONE: Self;
    /// Finite value below every value that a model computes; masked scores are set to it.
    const LOWEST: Self;
    /// Arguments of [`ModelFloat::exp`] are clamped to at least this; the result is then tiny and normal.
    const EXP_MIN: Self;
    /// Arguments of [`ModelFloat::exp`] are clamped to at most this.
    const EXP_MAX: Self;
    /// 1.5 · 2^(mantissa bits): adding it rounds to an integer, which is then in the low bits.
    const ROUNDER: Self;
    /// Upper part of ln 2, exact when multiplied by a small integer.
    const LN_2_HIGH: Self;
    /// ln 2 minus [`ModelFloat::LN_2_HIGH`].
    const LN_2_LOW: Self;
    /// Taylor coefficients of `exp`, from the highest power down.
    const EXP_SERIES: &'static [Self];
    /// `exp(z²)·erfc(z) / t` as a polynomial in `1 - 2t` with `t = 3 / (3 + z)`, from the highest
    /// power down; a Chebyshev fit for `z ≥ 0`.
    const ERFCX_SERIES: &'static [Self];

    /// Square root, correctly rounded.
    #[must_use]
    fn sqrt(self) -> Self;
    /// Natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// Larger of two numbers; for NaN, either one.
    #[must_use]
    fn max(self, other: Self) -> Self;
    /// Smaller of two numbers; for NaN, either one.
    #[must_use]
    fn min(self, other: Self) -> Self;
    /// Absolute value.
    #[must_use]
    fn abs(self) -> Self;
    /// 2ⁿ for the integer n that `self = n + ROUNDER` holds in its low bits.
    #[must_use]
    fn exp2_of_rounded(self) -> Self;

    /// `eˣ`, with a relative error of a few ulp; arguments are clamped to the range of normal results.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
    fn exp(self) -> Self {
        let x = self.max(Self::EXP_MIN).min(Self::EXP_MAX);
        let rounded = x * Self::from_f64(std::f64::consts::LOG2_E) + Self::ROUNDER;
        let n = rounded - Self::ROUNDER;
        let r = x - n * Self::LN_2_HIGH - n * Self::LN_2_LOW;
        horner(Self::EXP_SERIES, r) * rounded.exp2_of_rounded()
    }

    /// Scaled complementary error function `exp(z²)·erfc(z)`, for `z ≥ 0`.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
    fn erfcx(self) -> Self {
        let t = Self::from_f64(3.0) / (Self::from_f64(3.0) + self);
        t * horner(Self::ERFCX_SERIES, Self::ONE - (t + t))
    }
}

/// Evaluates the polynomial with coefficients `series` (highest power first) at `x`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn horner<F: ModelFloat>(series: &[F], x: F) -> F {
    let mut value = series[0];
    for &coefficient in &series[1..] {
        value = value * x + coefficient;
    }
    value
}

macro_rules! forward_to_std {
    () => {
        #[inline(always)]
        fn sqrt(self) -> Self {
            self.sqrt()
        }
        fn ln(self) -> Self {
            self.ln()
        }
        // A comparison instead of `max` and `min` of std: without a rule for NaN it is one
        // instruction.
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            if self < other { other } else { self }
        }
        #[inline(always)]
        fn min(self, other: Self) -> Self {
            if other < self { other } else { self }
        }
        #[inline(always)]
        fn abs(self) -> Self {
            self.abs()
        }
    };
}

#[expect(clippy::inline_always, reason = "must inherit the SIMD features of the caller")]
impl ModelFloat for f32 {
    const ONE: Self = 1.0;
    const LOWEST: Self = -1e30;
    const EXP_MIN: Self = -87.0;
    const EXP_MAX: Self = 88.0;
    const ROUNDER: Self = 12_582_912.0;
    const LN_2_HIGH: Self = 0.693_359_4;
    const LN_2_LOW: Self = -2.121_944_4e-4;
    const EXP_SERIES: &'static [Self] =
        &[1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    const ERFCX_SERIES: &'static [Self] = &[
        2.260_987_9e-5,
        -7.030_989e-5,
        -1.692_835_3e-4,
        9.911_235e-4,
        -4.107_903_5e-4,
        -8.933_907e-3,
        3.984_41e-2,
        -1.034_905_7e-1,
        1.967_426_6e-1,
        -2.944_647_4e-1,
        3.580_023e-1,
    ];

    #[inline(always)]
    fn exp2_of_rounded(self) -> Self {
        Self::from_bits((self.to_bits() << 23).wrapping_add(127 << 23))
    }
    forward_to_std!();
}

#[expect(clippy::inline_always, reason = "must inherit the SIMD features of the caller")]
impl ModelFloat for f64 {
    const ONE: Self = 1.0;
    const LOWEST: Self = -1e300;
    const EXP_MIN: Self = -708.0;
    const EXP_MAX: Self = 709.0;
    const ROUNDER: Self = 6_755_399_441_055_744.0;
    const LN_2_HIGH: Self = 0.693_147_180_369_123_8;
    const LN_2_LOW: Self = 1.908_214_929_270_587_7e-10;
    const EXP_SERIES: &'static [Self] = &[
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    const ERFCX_SERIES: &'static [Self] = &[
        5.473_714_338_981_09e-11,
        2.703_562_432_063_335_5e-10,
        -3.261_045_462_613_605e-10,
        -2.897_924_756_345_278_6e-9,
        -3.272_785_535_197_161_5e-10,
        1.706_080_732_337_357_3e-8,
        1.535_263_339_808_281_8e-8,
        -7.795_122_669_713_51e-8,
        -1.359_852_951_545_99e-7,
        3.329_390_047_636_991_5e-7,
        9.217_978_281_196_43e-7,
        -1.583_009_425_367_858_5e-6,
        -5.823_526_632_789_038e-6,
        1.013_268_386_190_893_7e-5,
        3.585_383_190_933_426e-5,
        -9.225_927_134_071_366e-5,
        -1.827_698_981_255_278_9e-4,
        1.011_353_998_686_046e-3,
        -4.041_388_756_152_773_5e-4,
        -8.942_411_541_350_472e-3,
        3.984_258_709_575_589e-2,
        -1.034_890_873_001_944e-1,
        1.967_427_857_013_674_4e-1,
        -2.944_648_177_232_944_7e-1,
        3.580_023_023_627_799e-1,
    ];

    #[inline(always)]
    fn exp2_of_rounded(self) -> Self {
        Self::from_bits((self.to_bits() << 52).wrapping_add(1023 << 52))
    }
    forward_to_std!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::dtype::reference::erf;

    #[track_caller]
    fn check_close(found: f64, expected: f64, relative: f64) {
        let error = ((found - expected) / expected).abs();
        assert!(error <= relative, "{found:e} instead of {expected:e}: {error:e}");
    }

    #[test]
    fn exp_matches_the_standard_library() {
        for i in -8000..8000 {
            let x = f64::from(i) * 0.01;
            check_close(ModelFloat::exp(x), f64::exp(x), 1e-15);
            check_close(ModelFloat::exp(x as f32).to_f64(), f64::from(x as f32).exp(), 4e-7);
        }
    }

    #[test]
    fn exp_is_clamped_to_normal_numbers() {
        assert!(f32::MIN_POSITIVE <= ModelFloat::exp(f32::LOWEST));
        assert!(ModelFloat::exp(1e30_f32).is_finite());
        assert!(f64::MIN_POSITIVE <= ModelFloat::exp(f64::LOWEST));
        assert!(ModelFloat::exp(1e300_f64).is_finite());
    }

    #[test]
    fn erfcx_is_exp_of_the_square_times_erfc() {
        for i in 0..100 {
            let z = f64::from(i) * 0.01;
            let expected = (z * z).exp() * (1.0 - erf(z));
            check_close(ModelFloat::erfcx(z), expected, 4e-14);
            check_close(ModelFloat::erfcx(z as f32).to_f64(), expected, 1e-6);
        }
        // Tables: erfcx(2), erfcx(5), erfcx(10).
        check_close(ModelFloat::erfcx(2.0_f64), 0.255_395_676_310_505_74, 2e-15);
        check_close(ModelFloat::erfcx(5.0_f64), 0.110_704_637_733_068_63, 2e-15);
        check_close(ModelFloat::erfcx(10.0_f64), 0.056_140_992_743_822_59, 2e-15);
        check_close(ModelFloat::erfcx(10.0_f32).to_f64(), 0.056_140_992_743_822_59, 1e-6);
    }
}

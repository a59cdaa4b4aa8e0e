//! Conversions of slices between `f32` and 16-bit floats.
//!
//! Values are rounded to nearest, ties to even. What is too large for [`F16`](super::half::F16) or
//! [`Bf16`](super::half::Bf16) becomes infinite; subnormal numbers are kept; NaN stays NaN, with its sign.
//! The loops need no instructions for 16-bit floats (F16C), and give the same bits on every processor.

use crate::os::cpu::simd::vectorized;
use crate::runtime::dtype::half::HalfFloat;

/// Writes `values`, rounded to 16 bits, to `rounded`.
///
/// # Panics
/// If the slices have different lengths.
pub fn round_slice<H: HalfFloat>(values: &[f32], rounded: &mut [H]) {
    assert_eq!(values.len(), rounded.len(), "the slices have the same length");
    let pairs = rounded.iter_mut().zip(values);
    vectorized(|| pairs.for_each(|(rounded, value)| *rounded = H::round(*value)));
}

/// Writes `values` to `wide` exactly.
///
/// # Panics
/// If the slices have different lengths.
pub fn widen_slice<H: HalfFloat>(values: &[H], wide: &mut [f32]) {
    assert_eq!(values.len(), wide.len(), "the slices have the same length");
    let pairs = wide.iter_mut().zip(values);
    vectorized(|| pairs.for_each(|(wide, value)| *wide = value.widen()));
}

/// Rounds `values` to numbers that the 16-bit type `H` has, and keeps them as `f32`.
pub fn round_in_place<H: HalfFloat>(values: &mut [f32]) {
    vectorized(|| values.iter_mut().for_each(|value| *value = H::round(*value).widen()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cpu::simd::tests::at_every_level;
    use crate::runtime::dtype::half::{Bf16, F16};
    use proptest::prelude::*;

    /// Any bits, and bits near the ends of the range of `F16`, where rounding differs.
    fn any_values() -> impl Strategy<Value = Vec<f32>> {
        let any_bits = any::<u32>().prop_map(f32::from_bits);
        let near_f16 =
            (any::<bool>(), 99u32..145, any::<u32>()).prop_map(|(sign, exponent, low)| {
                f32::from_bits(u32::from(sign) << 31 | exponent << 23 | low & 0x007f_f000)
            });
        proptest::collection::vec(prop_oneof![any_bits, near_f16], 0..200)
    }

    /// Checks a type against the conversions of crate `half`, on every level.
    fn check<H: HalfFloat + PartialEq + std::fmt::Debug>(
        values: &[f32],
        from_f32: fn(f32) -> H,
        to_f32: fn(H) -> f32,
    ) -> Result<(), TestCaseError> {
        let results = at_every_level(|| {
            let (mut rounded, mut wide) = (vec![H::default(); values.len()], values.to_vec());
            round_slice(values, &mut rounded);
            widen_slice(&rounded, &mut wide);
            let mut in_place = values.to_vec();
            round_in_place::<H>(&mut in_place);
            (wide, in_place)
        });
        for (wide, in_place) in results {
            for ((value, wide), in_place) in values.iter().zip(wide).zip(in_place) {
                let expect = to_f32(from_f32(*value));
                prop_assert_eq!(in_place.to_bits(), wide.to_bits());
                if value.is_nan() {
                    prop_assert!(wide.is_nan());
                    prop_assert_eq!(wide.is_sign_negative(), value.is_sign_negative());
                } else {
                    prop_assert_eq!(wide.to_bits(), expect.to_bits(), "{} becomes {}", value, wide);
                }
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn slices_are_rounded_as_crate_half_does(values in any_values()) {
            check::<F16>(&values, F16::from_f32, F16::to_f32)?;
            check::<Bf16>(&values, Bf16::from_f32, Bf16::to_f32)?;
        }

        #[test]
        fn rounding_twice_changes_nothing(values in any_values()) {
            let mut once = values;
            round_in_place::<F16>(&mut once);
            let mut twice = once.clone();
            round_in_place::<F16>(&mut twice);
            prop_assert!(once.iter().zip(&twice).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    #[test]
    fn known_values_are_rounded_to_nearest_even() {
        // 2049 lies between 2048 and 2050; 65520 rounds to 2^16, which F16 does not have.
        let mut values = [2049.0f32, 2051.0, 65_519.0, 65_520.0, 2f32.powi(-25), 2f32.powi(-24)];
        round_in_place::<F16>(&mut values);
        let expect = [2048.0, 2052.0, 65_504.0, f32::INFINITY, 0.0, 2f32.powi(-24)];
        assert_eq!(values.map(f32::to_bits), expect.map(f32::to_bits));
        let mut values = [257.0f32, 259.0, f32::MAX, -1.0 / 3.0];
        round_in_place::<Bf16>(&mut values);
        assert_eq!(values.map(f32::to_bits), [0x4380_0000, 0x4382_0000, 0x7f80_0000, 0xbeab_0000]);
    }
}

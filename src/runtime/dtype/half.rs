//! 16-bit floats, which are sent unchanged and reduced in `f32`. The types are those of crate `half`; its
//! conversions select instructions at run time for each value, so loops use the ones of this file.

#![expect(
    clippy::inline_always,
    reason = "a function has the instruction set of a loop only if it is inlined into it"
)]

pub use half::{bf16 as Bf16, f16 as F16};

/// 16-bit float, [`F16`] or [`Bf16`], with conversions for loops.
pub trait HalfFloat: Copy + Default {
    /// Converts to `f32` exactly.
    fn widen(self) -> f32;

    /// Rounds to the nearest value, ties to even.
    fn round(value: f32) -> Self;
}

/// Masks of the sign and of the other bits of an `f32`.
const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
/// Difference between the exponent biases of `f32` and `binary16`.
const REBIAS: u32 = 112;
/// Difference between the fraction lengths of `f32` and `binary16`, in bits.
const F16_CUT: u32 = 13;
/// Bits, as `f32`, of the smallest normal `F16`, and of the power of two above the largest one.
const F16_NORMAL_MIN: u32 = (REBIAS + 1) << 23;
const F16_BEYOND: u32 = (REBIAS + 31) << 23;

impl HalfFloat for F16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let magnitude = (bits & 0x7fff) << F16_CUT;
        // Exact, for subnormals too.
        let finite = f32::from_bits(magnitude) * f32::from_bits((127 + REBIAS) << 23);
        let is_finite = magnitude < 0x7c00 << F16_CUT;
        let value = if is_finite { finite.to_bits() } else { INFINITY | magnitude };
        f32::from_bits((bits & 0x8000) << 16 | value)
    }

    #[inline(always)]
    fn round(value: f32) -> Self {
        let bits = value.to_bits();
        let (sign, magnitude) = (bits & SIGN, bits & !SIGN);
        let half = if F16_BEYOND <= magnitude {
            if INFINITY < magnitude { 0x7e00 } else { 0x7c00 }
        } else if magnitude < F16_NORMAL_MIN {
            // The unit of a sum of 0.5 and a small number is that of the subnormals, so the
            // addition rounds.
            let half = 0.5f32;
            (f32::from_bits(magnitude) + half).to_bits() - half.to_bits()
        } else {
            drop_bits(magnitude - (REBIAS << 23), F16_CUT)
        };
        Self::from_bits((sign >> 16 | half) as u16)
    }
}

impl HalfFloat for Bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn round(value: f32) -> Self {
        let bits = value.to_bits();
        let is_nan = INFINITY < bits & !SIGN;
        Self::from_bits(if is_nan {
            (bits >> 16 | 0x40) as u16
        } else {
            drop_bits(bits, 16) as u16
        })
    }
}

/// Drops `cut` low bits, rounding to nearest, ties to even.
#[inline(always)]
fn drop_bits(bits: u32, cut: u32) -> u32 {
    let below_half = (1 << (cut - 1)) - 1;
    (bits + below_half + (bits >> cut & 1)) >> cut
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Float around a value: the one before it, itself, and the one after it.
    fn around(value: f32) -> [f32; 3] {
        [value.next_down(), value, value.next_up()]
    }

    #[test]
    fn half_is_converted_as_the_crate_does() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (F16::from_bits(bits), Bf16::from_bits(bits));
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same(half.widen(), half.to_f32()), "{bits:x}");
            assert!(same(brain.widen(), brain.to_f32()), "{bits:x}");
            // Every value, the middle between it and the next one, and their neighbours.
            let next = F16::from_bits(bits.wrapping_add(1)).to_f32();
            let middle = f32::midpoint(half.to_f32(), next);
            for value in [half.to_f32(), middle].into_iter().flat_map(around) {
                let (found, expect) = (F16::round(value), F16::from_f32(value));
                assert!(found.to_bits() == expect.to_bits() || value.is_nan(), "{value}");
            }
            let middle = f32::from_bits(u32::from(bits) << 16 | 0x8000);
            for value in [brain.to_f32(), middle].into_iter().flat_map(around) {
                let (found, expect) = (Bf16::round(value), Bf16::from_f32(value));
                assert!(found.to_bits() == expect.to_bits() || value.is_nan(), "{value}");
            }
        }
        assert!(F16::round(f32::NAN).is_nan() && Bf16::round(f32::NAN).is_nan());
    }
}

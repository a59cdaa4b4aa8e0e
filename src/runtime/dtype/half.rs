//! 16-bit floats, which are sent unchanged and reduced in `f32`.

#![expect(
    clippy::inline_always,
    reason = "a function has the instruction set of a loop only if it is inlined into it"
)]

use std::cmp::Ordering;
use std::fmt;

/// IEEE 754 `binary16` float: 5 bits of exponent, 10 of fraction.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F16(u16);

/// bfloat16, the upper half of an `f32`: 8 bits of exponent, 7 of fraction.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bf16(u16);

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

impl F16 {
    /// Creates the value from its bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the bits of the value.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Rounds to the nearest value, ties to even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
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
            round(magnitude - (REBIAS << 23), F16_CUT)
        };
        Self((sign >> 16 | half) as u16)
    }

    /// Converts to `f32` exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let bits = u32::from(self.0);
        let magnitude = (bits & 0x7fff) << F16_CUT;
        // Exact, for subnormals too.
        let finite = f32::from_bits(magnitude) * f32::from_bits((127 + REBIAS) << 23);
        let is_finite = magnitude < 0x7c00 << F16_CUT;
        let value = if is_finite { finite.to_bits() } else { INFINITY | magnitude };
        f32::from_bits((bits & 0x8000) << 16 | value)
    }
}

impl Bf16 {
    /// Creates the value from its bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the bits of the value.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Rounds to the nearest value, ties to even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let is_nan = INFINITY < bits & !SIGN;
        Self(if is_nan { (bits >> 16 | 0x40) as u16 } else { round(bits, 16) as u16 })
    }

    /// Converts to `f32` exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Drops `cut` low bits, rounding to nearest, ties to even.
#[inline(always)]
fn round(bits: u32, cut: u32) -> u32 {
    let below_half = (1 << (cut - 1)) - 1;
    (bits + below_half + (bits >> cut & 1)) >> cut
}

macro_rules! compare {
    ($type:ident) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }

        impl From<$type> for f32 {
            #[inline(always)]
            fn from(value: $type) -> Self {
                value.to_f32()
            }
        }
    };
}

compare!(F16);
compare!(Bf16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Value of the bits by the definition of the format: sign, exponent, fraction.
    fn value_of(bits: u16) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let value = match exponent {
            0 => fraction * (-24f64).exp2(),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * f64::from(exponent - 25).exp2(),
        };
        if bits & 0x8000 == 0 { value } else { -value }
    }

    #[test]
    fn half_survives_conversion_to_float_and_back() {
        for bits in 0..=u16::MAX {
            let (half, wide) = (F16::from_bits(bits), value_of(bits));
            let found = f64::from(half.to_f32());
            assert!(
                found.to_bits() == wide.to_bits() || found.is_nan() && wide.is_nan(),
                "{bits:x}"
            );
            let back = F16::from_f32(half.to_f32());
            assert!(back.to_bits() == bits || wide.is_nan() && back.to_f32().is_nan(), "{bits:x}");
            let brain = Bf16::from_bits(bits);
            let back = Bf16::from_f32(brain.to_f32());
            assert!(back.to_bits() == bits || brain.to_f32().is_nan() && back.to_f32().is_nan());
        }
    }

    #[test]
    fn half_rounds_to_nearest_ties_to_even() {
        for bits in 0..0x7c00u16 {
            let (low, high) = (value_of(bits), value_of(bits + 1));
            // The value above the largest one would be 65536.
            let high = if high.is_infinite() { 65536.0 } else { high };
            let middle = f64::midpoint(low, high) as f32;
            let even = bits + (bits & 1);
            assert_eq!(F16::from_f32(middle).to_bits(), even, "{bits:x}");
            assert_eq!(F16::from_f32(middle.next_down()).to_bits(), bits);
            assert_eq!(F16::from_f32(-middle.next_up()).to_bits(), (bits + 1) | 0x8000);
        }
        let tie = f32::from_bits(0x3f80_8000);
        assert_eq!(Bf16::from_f32(tie).to_bits(), 0x3f80);
        assert_eq!(Bf16::from_f32(tie.next_up()).to_bits(), 0x3f81);
        assert_eq!(Bf16::from_f32(f32::MAX).to_bits(), 0x7f80);
    }
}

//! Powers of a number, with equal bits on every processor: libm chooses its function by the processor, and
//! repeated products in f64 lose digits.

/// Number as the unrounded sum of a large and a small part.
#[derive(Clone, Copy)]
struct Double {
    high: f64,
    low: f64,
}

impl Double {
    /// Product with a relative error of about 2⁻¹⁰².
    fn times(self, other: Self) -> Self {
        let high = self.high * other.high;
        // The fused operation returns the rounding error of the product exactly.
        let error = self.high.mul_add(other.high, -high);
        let low = error + (self.high * other.low + self.low * other.high);
        let sum = high + low;
        Self { high: sum, low: (high - sum) + low }
    }
}

/// Returns `baseⁿ` for a base from 0 to 1, rounded correctly in all but rare cases.
pub(super) fn power(base: f64, exponent: u64) -> f64 {
    let mut result = Double { high: 1.0, low: 0.0 };
    let mut square = Double { high: base, low: 0.0 };
    let mut rest = exponent;
    while rest != 0 {
        if rest & 1 == 1 {
            result = result.times(square);
        }
        square = square.times(square);
        rest >>= 1;
    }
    result.high + result.low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Python's `float(Fraction(base) ** exponent)`, which is rounded correctly.
    #[test]
    fn power_is_rounded_correctly() {
        let cases = [
            (0.9, 1, 0x3fec_cccc_cccc_cccd),
            (0.9, 2, 0x3fe9_eb85_1eb8_51ec),
            (0.9, 3, 0x3fe7_53f7_ced9_1688),
            (0.9, 100, 0x3efb_da05_6ed4_9410),
            (0.95, 17, 0x3fda_c27b_cb63_c563),
            (0.999, 3, 0x3fef_e772_d557_0166),
            (0.999, 1000, 0x3fd7_8852_6411_ed72),
            (0.999, 12_345, 0x3ed2_2391_fb94_567e),
            (0.99, 777, 0x3f3a_9bdd_b457_0c09),
        ];
        for (base, exponent, bits) in cases {
            assert_eq!(power(base, exponent).to_bits(), bits, "{base}^{exponent}");
        }
    }

    #[test]
    fn power_is_close_to_the_standard_library() {
        for base in [0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999] {
            for exponent in (0..3000).chain([10_000, 100_000]) {
                let (found, expect) = (power(base, exponent), base.powf(exponent as f64));
                let ulps = found.to_bits().abs_diff(expect.to_bits());
                assert!(ulps <= 1, "{base}^{exponent} is {found}, not {expect}");
            }
        }
    }

    #[test]
    fn power_vanishes_at_last() {
        assert_eq!(power(0.999, u64::MAX).to_bits(), 0);
        assert_eq!(power(0.0, 1).to_bits(), 0);
        assert_eq!(power(0.0, 0).to_bits(), 1.0f64.to_bits());
    }
}

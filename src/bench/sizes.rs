//! Range of sizes to measure, and the parser of a number of bytes. Pure.

use std::iter;

/// Step from one size to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// Multiplication by this factor; 2 or more.
    Factor(u64),
    /// Addition of this number of bytes; 1 or more.
    Bytes(u64),
}

/// Range of sizes. [`Sizes::new`] guarantees that it has at least one and at most 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    first: u64,
    last: u64,
    stride: Stride,
}

/// Reason why a range of sizes is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// The smallest size is above the largest.
    #[error("the smallest size is above the largest")]
    Empty,
    /// The range has more sizes than a table can usefully have.
    #[error("the range has {count} sizes, the limit is {SIZES_MAX}")]
    TooMany {
        /// Number of sizes.
        count: u64,
    },
}

/// Largest number of sizes in a range.
const SIZES_MAX: u64 = 10_000;
/// Largest size in bytes; a larger one is a typing error.
const BYTES_MAX: u64 = 1 << 44;

impl Sizes {
    /// Sizes from `first` to at most `last` bytes.
    pub fn new(first: u64, last: u64, stride: Stride) -> Result<Self, SizesError> {
        if last < first {
            return Err(SizesError::Empty);
        }
        if let Stride::Bytes(bytes) = stride {
            let count = (last - first) / bytes + 1;
            if SIZES_MAX < count {
                return Err(SizesError::TooMany { count });
            }
        }
        Ok(Self { first, last, stride })
    }

    /// Returns the upper bound of the sizes.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Iterates over the sizes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { first, last, stride } = *self;
        iter::successors(Some(first), move |size| {
            let next = match stride {
                Stride::Factor(factor) => size.max(&1).checked_mul(factor),
                Stride::Bytes(bytes) => size.checked_add(bytes),
            };
            next.filter(|next| *next <= last)
        })
    }
}

/// Reason why a text is not a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BytesError {
    /// The text does not begin with digits.
    #[error("expected a size")]
    NoNumber,
    /// The digits are not followed by a known unit.
    #[error("expected a size with one of the units K, M, G and T")]
    NoUnit,
    /// The size is above 16 TiB.
    #[error("the largest size is 16T")]
    TooLarge,
}

/// Parses a number of bytes, such as `8`, `64K`, `128M` or `1GiB`; units are powers of 1024, as in
/// nccl-tests.
pub fn parse_bytes(text: &str) -> Result<u64, BytesError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(BytesError::NoNumber);
    }
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(BytesError::NoUnit),
    };
    // Digits fail to parse only if there are too many.
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes <= BYTES_MAX).ok_or(BytesError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(first: u64, last: u64, stride: Stride, expect: &[u64]) {
        let sizes = Sizes::new(first, last, stride).expect("a valid range");
        assert_eq!(sizes.iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn sizes_span_the_range() {
        check(8, 64, Stride::Factor(2), &[8, 16, 32, 64]);
        check(8, 63, Stride::Factor(4), &[8, 32]);
        check(0, 4, Stride::Factor(2), &[0, 2, 4]);
        check(5, 20, Stride::Bytes(5), &[5, 10, 15, 20]);
        check(7, 7, Stride::Bytes(1), &[7]);
        check(u64::MAX / 2, u64::MAX, Stride::Factor(3), &[u64::MAX / 2]);
    }

    #[test]
    fn sizes_reject_invalid_ranges() {
        assert_eq!(Sizes::new(9, 8, Stride::Factor(2)), Err(SizesError::Empty));
        let many = SizesError::TooMany { count: 1 << 20 };
        assert_eq!(Sizes::new(1, 1 << 20, Stride::Bytes(1)), Err(many));
    }

    #[test]
    fn parse_bytes_accepts_units() {
        assert_eq!(parse_bytes("8"), Ok(8));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("1gib"), Ok(1 << 30));
        assert_eq!(parse_bytes("16T"), Ok(1 << 44));
        for text in ["", "K", "-1", "n2"] {
            assert_eq!(parse_bytes(text), Err(BytesError::NoNumber), "{text}");
        }
        for text in ["1.5M", "8X", "1 M"] {
            assert_eq!(parse_bytes(text), Err(BytesError::NoUnit), "{text}");
        }
        for text in ["99999999999999999999", "17T", "9999999T", "99999999T"] {
            assert_eq!(parse_bytes(text), Err(BytesError::TooLarge), "{text}");
        }
    }
}

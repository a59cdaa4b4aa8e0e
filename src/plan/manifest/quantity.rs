//! Amount of a resource in Kubernetes' notation: `500m`, `1.5`, `16Gi`. Pure.

use std::fmt;
use std::ops::Range;

/// Amounts are compared in billionths, the finest unit of Kubernetes.
const NANOS: u128 = 1_000_000_000;
const MILLI: u128 = NANOS / 1000;
/// Kubernetes keeps an amount in 63 bits.
const NANOS_MAX: u128 = i64::MAX as u128 * NANOS;

/// Every unit, in billionths. For a unit in another case, the first that fits is suggested.
const UNITS: [(&str, u128); 15] = [
    ("k", NANOS * 1000),
    ("M", NANOS * 1_000_000),
    ("G", NANOS * 1_000_000_000),
    ("T", NANOS * 1_000_000_000_000),
    ("P", NANOS * 1_000_000_000_000_000),
    ("E", NANOS * 1_000_000_000_000_000_000),
    ("Ki", NANOS << 10),
    ("Mi", NANOS << 20),
    ("Gi", NANOS << 30),
    ("Ti", NANOS << 40),
    ("Pi", NANOS << 50),
    ("Ei", NANOS << 60),
    ("m", MILLI),
    ("u", NANOS / 1_000_000),
    ("n", 1),
];

/// Amount of a resource, greater than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    nanos: u128,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not begin with a number.
    #[error("expected a quantity")]
    NotANumber,
    /// The number is negative.
    #[error("a quantity cannot be negative")]
    Negative,
    /// The number is 0.
    #[error("a quantity must be greater than 0")]
    Zero,
    /// The number has an unknown unit.
    #[error("`{unit}` is not a unit of Kubernetes")]
    Unit {
        /// The text after the number.
        unit: String,
        /// Its position in the text.
        range: Range<usize>,
        /// The whole quantity with the unit that was probably intended.
        near: Option<String>,
    },
    /// The amount exceeds Kubernetes' limit.
    #[error("the quantity is too large")]
    TooLarge,
    /// The amount is finer than a billionth.
    #[error("the quantity is finer than `1n`")]
    TooFine,
}

impl QuantityError {
    /// A correction for the user.
    pub fn help(&self) -> String {
        match self {
            Self::Unit { near: Some(near), .. } => format!("did you mean `{near}`?"),
            Self::Unit { near: None, .. } => {
                "the units are m, k, M, G, T, P, E, and Ki, Mi, Gi, Ti, Pi, Ei".to_owned()
            }
            Self::NotANumber | Self::Negative | Self::Zero | Self::TooLarge | Self::TooFine => {
                "write a number and a unit: `500m`, `1.5`, `16Gi`".to_owned()
            }
        }
    }

    /// The part of a text of this length to which the error applies.
    pub fn range(&self, length: usize) -> Range<usize> {
        match self {
            Self::Unit { range, .. } => range.clone(),
            Self::NotANumber | Self::Negative | Self::Zero | Self::TooLarge | Self::TooFine => {
                0..length
            }
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Quantity {
    /// Reads `500m`, `1.5`, `16Gi` or `2e3`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.starts_with('-') {
            return Err(QuantityError::Negative);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(QuantityError::NotANumber);
        }
        let scale = parse_scale(unit).ok_or_else(|| QuantityError::Unit {
            unit: unit.to_owned(),
            range: end..text.len(),
            near: similar_unit(unit).map(|unit| format!("{number}{unit}")),
        })??;
        let nanos = parse_nanos(&format!("{whole}{fraction}"), fraction.len(), scale)?;
        Ok(Self { text: text.to_owned(), nanos })
    }

    /// A whole number.
    pub fn whole(number: u32) -> Self {
        Self { text: number.to_string(), nanos: u128::from(number) * NANOS }
    }

    /// Whether it is a whole number.
    pub fn is_whole(&self) -> bool {
        self.nanos.is_multiple_of(NANOS)
    }

    /// Whether it is a number of thousandths.
    pub fn is_milli(&self) -> bool {
        self.nanos.is_multiple_of(MILLI)
    }

    /// Whether it is more than another one.
    pub fn exceeds(&self, other: &Self) -> bool {
        other.nanos < self.nanos
    }

    /// Whether both are the same amount, however they are written.
    pub fn equals(&self, other: &Self) -> bool {
        other.nanos == self.nanos
    }
}

/// The factor of a unit or an exponent; `None`: it is neither.
fn parse_scale(unit: &str) -> Option<Result<u128, QuantityError>> {
    if unit.is_empty() {
        return Some(Ok(NANOS));
    }
    if let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) {
        return Some(Ok(*scale));
    }
    let exponent: i32 = unit.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some(match exponent {
        -9..=18 => Ok(10u128.pow((exponent + 9) as u32)),
        ..-9 => Err(QuantityError::TooFine),
        19.. => Err(QuantityError::TooLarge),
    })
}

fn parse_nanos(digits: &str, decimals: usize, scale: u128) -> Result<u128, QuantityError> {
    let product = digits.parse::<u128>().ok().and_then(|number| number.checked_mul(scale));
    let product = product.ok_or(QuantityError::TooLarge)?;
    let divisor = 10u128.checked_pow(decimals as u32).ok_or(QuantityError::TooFine)?;
    match product / divisor {
        _ if product == 0 => Err(QuantityError::Zero),
        _ if !product.is_multiple_of(divisor) => Err(QuantityError::TooFine),
        nanos if NANOS_MAX < nanos => Err(QuantityError::TooLarge),
        nanos => Ok(nanos),
    }
}

/// The unit that another spelling, such as `GB`, `gi` or `K`, stands for.
fn similar_unit(unit: &str) -> Option<&'static str> {
    let bare = unit.trim_end_matches(['b', 'B']).to_lowercase();
    UNITS.iter().map(|(name, _)| *name).find(|name| name.to_lowercase() == bare)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match Quantity::parse(text) {
            Ok(quantity) => format!("{} {}", quantity.nanos / NANOS, quantity.nanos % NANOS),
            Err(error) => format!("{error}: {}", error.help()),
        };
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn quantity_reads_what_kubernetes_writes() {
        check("4", "4 0");
        check("1.5", "1 500000000");
        check(".5", "0 500000000");
        check("5.", "5 0");
        check("500m", "0 500000000");
        check("16Gi", "17179869184 0");
        check("0.5Ki", "512 0");
        check("2k", "2000 0");
        check("2e3", "2000 0");
        check("1E3", "1000 0");
        check("1E", "1000000000000000000 0");
        check("10n", "0 10");
    }

    #[test]
    fn quantity_error_suggests_a_unit() {
        check("16GB", "`GB` is not a unit of Kubernetes: did you mean `16G`?");
        check("16gi", "`gi` is not a unit of Kubernetes: did you mean `16Gi`?");
        check("8GiB", "`GiB` is not a unit of Kubernetes: did you mean `8Gi`?");
        check("1K", "`K` is not a unit of Kubernetes: did you mean `1k`?");
        check("100MB", "`MB` is not a unit of Kubernetes: did you mean `100M`?");
        let units = "the units are m, k, M, G, T, P, E, and Ki, Mi, Gi, Ti, Pi, Ei";
        check("4cores", &format!("`cores` is not a unit of Kubernetes: {units}"));
        let write = "write a number and a unit: `500m`, `1.5`, `16Gi`";
        for text in ["", "Gi", "x", ".", "1.2.3"] {
            check(text, &format!("expected a quantity: {write}"));
        }
        check("-1", &format!("a quantity cannot be negative: {write}"));
        check("0Gi", &format!("a quantity must be greater than 0: {write}"));
        check("9Ei", &format!("the quantity is too large: {write}"));
        check("1e30", &format!("the quantity is too large: {write}"));
        check("0.1n", &format!("the quantity is finer than `1n`: {write}"));
    }

    proptest! {
        #[test]
        fn quantity_of_any_text_is_an_amount_or_an_error(text in "[-0-9.eEkKmMgGiTbB+ ]{0,12}") {
            match Quantity::parse(&text) {
                Ok(quantity) => {
                    prop_assert!(0 < quantity.nanos && quantity.nanos <= NANOS_MAX);
                    prop_assert_eq!(quantity.to_string(), text);
                }
                Err(error) => {
                    let range = error.range(text.len());
                    prop_assert!(text.get(range).is_some());
                }
            }
        }

        #[test]
        fn quantity_keeps_whole_numbers(number in 1u32..) {
            let read = Quantity::parse(&number.to_string());
            prop_assert_eq!(read, Ok(Quantity::whole(number)));
        }
    }
}

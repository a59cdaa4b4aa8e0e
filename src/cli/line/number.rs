//! Numeric values of options, with the syntax of Python, and messages about other values.

use std::fmt;
use std::ops::RangeInclusive;

pub(in crate::cli) use crate::base::python_int;

/// Error about a value, with the expected form. clap gets it from parsers of values, and
/// `clap_error` extracts it from clap's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BadValue {
    /// Text under the caret: `expected a whole number`.
    pub label: String,
    /// What the user can type instead.
    pub help: Option<String>,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl BadValue {
    /// Creates an error without a hint.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), help: None }
    }

    /// Adds the hint.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Largest distance of the ends of a range whose numbers a message lists.
const LISTED_MAX: i64 = 3;

/// Parses a whole number within a range, with the syntax of Python's `int()`.
pub(in crate::cli) fn parse_whole(text: &str, range: RangeInclusive<i64>) -> Result<i64, BadValue> {
    let number = python_int(text).ok_or_else(|| BadValue::new("expected a whole number"))?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(BadValue::new(match (*range.start(), *range.end()) {
        (low, i64::MAX) => format!("expected a number of at least {low}"),
        (low, high) if high.saturating_sub(low) <= LISTED_MAX && low < high => {
            let before: Vec<String> = (low..high).map(|number| number.to_string()).collect();
            format!("expected {} or {high}", before.join(", "))
        }
        (low, high) => format!("expected a number from {low} to {high}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_ranges() {
        assert_eq!(parse_whole(" +1_0 ", 1..=10), Ok(10));
        assert_eq!(parse_whole("11", 1..=10), Err(BadValue::new("expected a number from 1 to 10")));
        assert_eq!(
            parse_whole("0", 1..=i64::MAX),
            Err(BadValue::new("expected a number of at least 1"))
        );
        assert_eq!(parse_whole("4", 0..=3), Err(BadValue::new("expected 0, 1, 2 or 3")));
        assert_eq!(parse_whole("ten", 1..=10), Err(BadValue::new("expected a whole number")));
        assert!(parse_whole("99999999999999999999999", 1..=65535).is_err());
    }
}

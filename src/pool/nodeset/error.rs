//! Errors of a list of host names.

use crate::base::ids::HostNameError;
use crate::base::{Diagnostic, Span, show_typed};
use crate::pool::codes;

/// An error and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeProblem {
    /// The kind of the error.
    pub error: RangeError,
    /// Its position in the text.
    pub span: Span,
}

/// An error of a list of host names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// An open bracket. Slurm and pdsh treat the rest of the word as a name.
    #[error("`[` is not closed")]
    Unclosed,
    /// A closing bracket without an opening one.
    #[error("`]` without `[`")]
    Unopened,
    /// A missing number: `[]`, `[1,,2]`.
    #[error("a number is missing in the range")]
    EmptyItem,
    /// A word instead of a number: `[a-c]`.
    #[error("`{}` is not a number", show_typed(.0))]
    NotANumber(String),
    /// A descending range: `[3-1]`.
    #[error("descending range: {last} is below {first}")]
    Reversed {
        /// First number, as written.
        first: String,
        /// Last number, as written.
        last: String,
    },
    /// Numbers with different padding: `[01-3]` is 01, 02, 03 in Slurm; other tools refuse it.
    #[error("`{first}` and `{last}` are padded differently")]
    Padding {
        /// First number, as written.
        first: String,
        /// Last number, as written.
        last: String,
    },
    /// An invalid step: `[1-9/0]`, `[1/2]`.
    #[error("a step follows a range and is at least 1")]
    BadStep,
    /// A number of more than 18 digits.
    #[error("the number is too large")]
    TooLarge,
    /// More ranges than any naming scheme has.
    #[error("more than {max} ranges in one name", max = super::Pattern::RANGES_MAX)]
    TooManyRanges,
    /// Too many hosts: a typing error can name billions.
    #[error("{0} hosts exceed the limit {max}", max = crate::pool::nodeset::error::NAMES_MAX)]
    TooManyNames(u64),
    /// An empty name between two commas.
    #[error("a host name is missing")]
    EmptyName,
    /// A pattern whose names are not host names.
    #[error(transparent)]
    BadName(#[from] HostNameError),
}

impl RangeProblem {
    /// The diagnostic for the user.
    pub fn diagnostic(&self) -> Diagnostic {
        let code = match self.error {
            RangeError::TooManyNames(_) => codes::RANGE_TOO_LONG,
            RangeError::BadName(HostNameError::NotAscii { .. }) => codes::HOST_NOT_ASCII,
            RangeError::BadName(_) => codes::BAD_HOST,
            _ => codes::BAD_RANGE,
        };
        let problem = Diagnostic::error(code, self.span, self.error.to_string()).help(self.help());
        let problem = match &self.error {
            RangeError::Padding { first, last } => {
                let width = first.len().max(last.len());
                let plain = [first, last].map(|text| match text.trim_start_matches('0') {
                    "" => "0",
                    digits => digits,
                });
                problem.label(format!(
                    "is it `{first:0>width$}-{last:0>width$}` or `{}-{}`?",
                    plain[0], plain[1]
                ))
            }
            RangeError::Unclosed => problem.label("opened here"),
            _ => problem,
        };
        match &self.error {
            RangeError::Reversed { first, last } => {
                problem.guess(self.span, format!("{last}-{first}"))
            }
            _ => problem,
        }
    }

    fn help(&self) -> &'static str {
        match self.error {
            RangeError::Unclosed => "close it with `]`",
            RangeError::Unopened => "remove it, or open the range with `[`",
            RangeError::EmptyItem | RangeError::NotANumber(_) | RangeError::TooLarge => {
                "brackets contain numbers and ranges: `n[01-03,7]`"
            }
            RangeError::Reversed { .. } => "write the smaller number first",
            RangeError::Padding { .. } => "write both numbers with the same number of digits",
            RangeError::BadStep => "write `[1-9/2]` for every second number",
            RangeError::TooManyRanges => "write several names, separated by commas",
            RangeError::TooManyNames(_) => "correct the range, or split the list",
            RangeError::EmptyName => "remove the comma",
            RangeError::BadName(_) => {
                "a host name has letters, digits, `.`, `-` and `_`, and begins with a letter or digit"
            }
        }
    }
}

/// Limit of the names in one list.
pub const NAMES_MAX: u64 = 65_536;

//! A host name with ranges in it, and the names to which it expands.

use std::fmt;

use crate::base::HostName;

/// A host name pattern: text and ranges in turn, such as `rack`, `[1-2]`, `n`, `[01-16]`.
///
/// It expands to at least one name, and to at most [`NAMES_MAX`](super::NAMES_MAX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub(super) parts: Vec<PatternPart>,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatternPart {
    /// Literal text.
    Text(String),
    /// One of these numbers.
    Numbers(Vec<Run>),
}

/// A run of numbers, `first-last/step`; a single number is a run of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) step: u64,
    /// Digits of every number, with leading zeros; 0: no padding.
    pub(super) width: usize,
}

impl Run {
    pub(super) fn count(self) -> u64 {
        (self.last - self.first) / self.step + 1
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, step, width } = *self;
        write!(f, "{first:0width$}")?;
        if first != last {
            write!(f, "-{last:0width$}")?;
        }
        if step == 1 { Ok(()) } else { write!(f, "/{step}") }
    }
}

impl PatternPart {
    fn count(&self) -> u64 {
        match self {
            Self::Text(_) => 1,
            Self::Numbers(runs) => {
                runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.count()))
            }
        }
    }

    /// Appends the text or the number at that index.
    fn push(&self, mut index: u64, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::Numbers(runs) => {
                for run in runs {
                    if index < run.count() {
                        return push_number(run.first + index * run.step, run.width, out);
                    }
                    index -= run.count();
                }
            }
        }
    }
}

/// Writes the same as `{number:0width$}`, in a fifth of the time; no width is above 20.
fn push_number(mut number: u64, width: usize, out: &mut String) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    while 0 < number || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    let first = first.min(digits.len() - width);
    out.push_str(std::str::from_utf8(&digits[first..]).expect("digits are text"));
}

impl Pattern {
    /// The number of names, without a check of the limit.
    pub(super) fn count_of(pieces: &[PatternPart]) -> u64 {
        pieces.iter().fold(1, |product: u64, piece| product.saturating_mul(piece.count()))
    }

    /// The number of names.
    pub fn count(&self) -> u64 {
        Self::count_of(&self.parts)
    }

    /// The names in order; the last range varies fastest.
    pub fn hosts(&self) -> impl Iterator<Item = HostName> {
        let mut name = String::new();
        (0..self.count()).map(move |index| {
            name.clear();
            self.push_name(index, &mut name);
            HostName::parse(&name).expect("the longest name was checked")
        })
    }

    /// Appends the name at that index.
    fn push_name(&self, mut index: u64, out: &mut String) {
        let mut choices = [0; Self::RANGES_MAX];
        let ranges = self.parts.iter().filter(|piece| matches!(piece, PatternPart::Numbers(_)));
        let last = ranges.clone().count();
        for (piece, choice) in ranges.rev().zip(choices[..last].iter_mut().rev()) {
            *choice = index % piece.count();
            index /= piece.count();
        }
        let mut choices = choices.iter();
        for piece in &self.parts {
            let choice = match piece {
                PatternPart::Text(_) => 0,
                PatternPart::Numbers(_) => *choices.next().expect("one for each range"),
            };
            piece.push(choice, out);
        }
    }

    /// Limit of the ranges of one pattern; Slurm allows five.
    pub(super) const RANGES_MAX: usize = 8;
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.parts {
            match piece {
                PatternPart::Text(text) => f.write_str(text)?,
                PatternPart::Numbers(runs) => {
                    let runs: Vec<String> = runs.iter().map(Run::to_string).collect();
                    write!(f, "[{}]", runs.join(","))?;
                }
            }
        }
        Ok(())
    }
}

//! Parser of `NAME=value` lines in the form of `env` and of shells.

use crate::base::Span;
use crate::pool::dialect::kind::Dialect;
use crate::pool::hostfile::host_line::HostToken;

/// The dialect to which the variable of a word belongs.
pub(super) fn dialect_of(word: &str) -> Option<Dialect> {
    let (name, _) = word.split_once('=')?;
    if name.starts_with("SLURM_") {
        Some(Dialect::Slurm)
    } else if name.starts_with("LSB_") {
        Some(Dialect::Lsf)
    } else {
        None
    }
}

/// Splits a line into a variable and its value, which ends with the line and may be in quotes.
pub(super) fn split_variable(line: &str, start: usize) -> Option<(&str, HostToken<'_>)> {
    let trimmed = line.trim_start();
    let trimmed = trimmed.strip_prefix("export ").unwrap_or(trimmed).trim_start();
    let (name, value) = trimmed.split_once('=')?;
    dialect_of(trimmed)?;
    let value = value.trim_end();
    let inner = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value);
    let at = start + (inner.as_ptr() as usize - line.as_ptr() as usize);
    Some((name, HostToken { text: inner, span: Span::new(at, at + inner.len()) }))
}

//! `NAME=value` lines, as `env` prints them and as shells set them.

use crate::base::Span;
use crate::pool::line::HostToken;

use super::Dialect;

/// Whose variable a word sets.
pub(super) fn owner(word: &str) -> Option<Dialect> {
    let (name, _) = word.split_once('=')?;
    if name.starts_with("SLURM_") {
        Some(Dialect::Slurm)
    } else if name.starts_with("LSB_") {
        Some(Dialect::Lsf)
    } else {
        None
    }
}

/// A variable and its value, which ends with its line and may stand in quotes.
pub(super) fn variable(line: &str, start: usize) -> Option<(&str, HostToken<'_>)> {
    let trimmed = line.trim_start();
    let trimmed = trimmed.strip_prefix("export ").unwrap_or(trimmed).trim_start();
    let (name, value) = trimmed.split_once('=')?;
    owner(trimmed)?;
    let value = value.trim_end();
    let inner = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value);
    let at = start + (inner.as_ptr() as usize - line.as_ptr() as usize);
    Some((name, HostToken { text: inner, span: Span::new(at, at + inner.len()) }))
}

//! The form of a line, determined before its content is parsed.

use super::variables;
use crate::base::{Diagnostic, HostName, Span};
use crate::pool::codes;
use crate::pool::dialect::kind::Dialect;
use crate::pool::dialect::kind::article;
use crate::pool::dialect::kind::with_article;
use crate::pool::hostfile::host_line::HostToken;
use crate::pool::hostfile::host_word::host_sign_setting;
use crate::pool::nodeset::is_pattern;

/// A form of a line that is evidence for a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineShape {
    /// `host slots=4`, or a misspelling of it.
    Slots,
    /// `max_slots=`, `//`, `^host`, `+n1`.
    OpenMpi,
    /// `n[1-4]`, `a,b`, with or without slots.
    Pattern,
    /// `host:4`.
    Colon,
    /// `a:4,b:4`.
    ColonList,
    /// `host`.
    Bare,
    /// `host 4`, and several of them.
    Pairs,
    /// `host 4 queue@host <NULL>`.
    Queue,
    /// `SLURM_…=`, `LSB_…=`.
    Variable(Dialect),
    /// Anything else: an error in one dialect is no evidence for another.
    Other,
}

impl LineShape {
    /// Dialects in which lines of this form are valid, the most likely one first.
    pub(super) fn dialects(self) -> &'static [Dialect] {
        match self {
            Self::Slots => &[Dialect::DeepSpeed, Dialect::OpenMpi, Dialect::Ranges],
            Self::OpenMpi => &[Dialect::OpenMpi],
            Self::Pattern => &[Dialect::Ranges],
            Self::Colon => &[Dialect::Hydra, Dialect::Horovod, Dialect::Ranges],
            Self::ColonList => &[Dialect::Horovod, Dialect::Ranges],
            Self::Bare => &[Dialect::Pbs],
            Self::Pairs | Self::Variable(Dialect::Lsf) => &[Dialect::Lsf],
            Self::Queue => &[Dialect::Sge],
            Self::Variable(_) => &[Dialect::Slurm],
            Self::Other => &[],
        }
    }

    /// The form of a line, and the word that shows it.
    pub(super) fn of<'a>(words: &[HostToken<'a>]) -> Option<(Self, HostToken<'a>)> {
        let (&first, rest) = words.split_first()?;
        if let Some(dialect) = variables::dialect_of(first.text) {
            return Some((Self::Variable(dialect), first));
        }
        if let Some(word) = words.iter().copied().find(|word| is_open_mpi(*word, first)) {
            return Some((Self::OpenMpi, word));
        }
        // A comma at the end of a host is a typing error and does not make it a list.
        let host = first.text.strip_suffix(',').unwrap_or(first.text);
        let shape = match rest {
            // `n1,slots=4` is a host with a wrong sign and no list.
            _ if host_sign_setting(first).is_some() => Self::Slots,
            _ if is_list(first.text) && rest.len() <= 1 => list_shape(first.text),
            [] if is_host(host) => Self::Bare,
            [] if is_counted(first.text) => Self::Colon,
            _ if is_host(host) && rest.iter().any(|word| is_setting(word.text)) => Self::Slots,
            [_, queue] | [_, queue, _] if is_pair(words) && queue.text.contains('@') => Self::Queue,
            _ if words.chunks(2).all(is_pair) => Self::Pairs,
            _ => Self::Other,
        };
        Some((shape, first))
    }
}

fn is_open_mpi(word: HostToken<'_>, first: HostToken<'_>) -> bool {
    let is_first = word.span == first.span;
    let relative = |text: &str| text.starts_with("+n") || text.starts_with("+e");
    match word.text {
        text if is_first => text.starts_with('^') || relative(text),
        text => {
            text.starts_with("//")
                || text.starts_with("max_slots=")
                || text.starts_with("max-slots=")
        }
    }
}

/// Whether a word holds several hosts. A range that a comma cuts in two leaves brackets in both
/// parts.
fn is_list(text: &str) -> bool {
    let is_host_and_comma = text.strip_suffix(',').is_some_and(is_host);
    text.contains(',') && !is_host_and_comma || is_pattern(text)
}

fn list_shape(text: &str) -> LineShape {
    let has_range = text.split(',').any(is_pattern);
    if !has_range && text.split(',').any(is_counted) {
        LineShape::ColonList
    } else {
        LineShape::Pattern
    }
}

fn is_host(text: &str) -> bool {
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    HostName::parse(host).is_ok() && !is_number(text)
}

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word is `host:4`; an IPv6 address without brackets is not.
fn is_counted(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, count)| is_host(host) && is_number(count))
}

/// Whether a word is `slots=4`, `Slots` or `lots=4`; the attributes of MPICH are not.
fn is_setting(text: &str) -> bool {
    let key = text.split('=').next().unwrap_or_default();
    let is_mpich = matches!(key, "ifname" | "user" | "binding");
    key.eq_ignore_ascii_case("slots") || text.contains('=') && !is_mpich
}

fn is_pair(words: &[HostToken<'_>]) -> bool {
    matches!(words, [host, count, ..] if is_host(host.text) && is_number(count.text))
}

/// The dialect for which a line is evidence, if it is not this one.
pub(super) fn other_dialect(words: &[HostToken<'_>], dialect: Dialect) -> Option<Dialect> {
    let (shape, _) = LineShape::of(words)?;
    let dialects = shape.dialects();
    // Bare hosts are valid in nearly every dialect.
    let is_valid_here = shape == LineShape::Bare || dialects.contains(&dialect);
    dialects.first().copied().filter(|_| !is_valid_here)
}

/// The error for two dialects in one file.
pub(super) fn mixed_dialects(
    words: &[HostToken<'_>],
    dialect: Dialect,
    other: Dialect,
) -> Diagnostic {
    let (first, last) = (words[0].span, words[words.len() - 1].span);
    let span = Span::new(first.start, last.end);
    let message = format!("{} {other} line in {}", article(other), with_article(dialect));
    Diagnostic::error(codes::MIXED_DIALECTS, span, message)
        .label(format!("expected {}", example(dialect)))
        .help(format!(
            "write the whole file in one dialect; `--from {}` reads all of it as {}",
            other.name(),
            with_article(other)
        ))
}

/// An example of a line of the dialect.
fn example(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::DeepSpeed | Dialect::OpenMpi => "`host slots=4`",
        Dialect::Hydra => "`host:4`",
        Dialect::Slurm => "`SLURM_JOB_NODELIST=...`",
        Dialect::Pbs => "only a host name",
        Dialect::Lsf => "`host 4`",
        Dialect::Sge => "`host 4 queue@host <NULL>`",
        Dialect::Horovod => "`host:4,host:4`",
        Dialect::Ranges => "`n[1-4] slots=8`",
    }
}

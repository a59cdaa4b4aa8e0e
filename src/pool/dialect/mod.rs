//! Hostfile formats (dialects) of all launchers and schedulers: parsed into one typed pool, and
//! written from it.
//!
//! One file for each dialect: the meaning of its lines, and how hosts are written in it. `detect`
//! finds the dialect of a text by its lines; a text that DeepSpeed reads without an error is never
//! taken for another dialect.

mod detect;
mod foreign;
mod horovod;
mod hydra;
mod lsf;
mod openmpi;
mod pbs;
mod ranges;
mod sge;
mod shape;
mod slurm;
mod variables;
mod write;

use std::collections::BTreeMap;
use std::fmt;

use super::codes;
use super::text::decode;
use crate::base::{Applicability, Diagnostic, Findings, Severity, Source, Span, show_typed};
use crate::pool::hostfile::host_line::HostToken;
use crate::pool::hostfile::hosts::{Hostfile, SlotCount};
use crate::pool::hostfile::line::{check_characters, line_without_comment, words};
use crate::pool::hostfile::parse::{for_each_line, merge_in_order, parse_deepspeed};
use crate::pool::hostfile::reader::{LinePosition, Reader};

pub use self::write::{HostfileFormat, Written, lost_limits, write};

pub(super) use self::openmpi::comment_at as slashes_at;

/// Limit of the bytes of a line in dialects other than DeepSpeed's: some have all hosts on one
/// line.
const LIST_BYTES_MAX: usize = 4 << 20;

/// A format of hosts and slots, named after the program that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// The format `host slots=4`.
    DeepSpeed,
    /// The format `host slots=4 max_slots=8 // comment`; a bare host is repeated once for each
    /// slot.
    OpenMpi,
    /// The format `host:4` of MPICH and Intel MPI.
    Hydra,
    /// The variables `SLURM_JOB_NODELIST=n[1-4]` and `SLURM_TASKS_PER_NODE=2(x4)`.
    Slurm,
    /// One line for each slot.
    Pbs,
    /// The format `host 4` or `a 2 b 2`, or a host repeated once for each slot.
    Lsf,
    /// The format `host 4 queue@host <NULL>`.
    Sge,
    /// The format `a:4,b:4`.
    Horovod,
    /// The format `n[1-4]:8` or `n[1-4] slots=8`, with host names as in pdsh and ClusterShell.
    Ranges,
}

impl Dialect {
    /// All dialects; for lines that fit several, the earlier one is chosen.
    pub const ALL: [Self; 9] = [
        Self::DeepSpeed,
        Self::OpenMpi,
        Self::Hydra,
        Self::Ranges,
        Self::Pbs,
        Self::Horovod,
        Self::Lsf,
        Self::Sge,
        Self::Slurm,
    ];

    /// The name of the dialect on a command line: `--from openmpi`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeepSpeed => "deepspeed",
            Self::OpenMpi => "openmpi",
            Self::Hydra => "hydra",
            Self::Slurm => "slurm",
            Self::Pbs => "pbs",
            Self::Lsf => "lsf",
            Self::Sge => "sge",
            Self::Horovod => "horovod",
            Self::Ranges => "ranges",
        }
    }

    /// Other accepted names of the dialect.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::DeepSpeed => &["ds"],
            Self::OpenMpi => &["ompi", "prrte"],
            Self::Hydra => &["mpich", "impi", "intel"],
            Self::Slurm | Self::Lsf | Self::Horovod => &[],
            Self::Pbs => &["torque"],
            Self::Sge => &["uge"],
            Self::Ranges => &["pdsh", "clustershell", "nodeset"],
        }
    }
}

/// The name of the dialect in messages: `Open MPI`.
impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeepSpeed => "DeepSpeed",
            Self::OpenMpi => "Open MPI",
            Self::Hydra => "MPICH",
            Self::Slurm => "Slurm",
            Self::Pbs => "PBS",
            Self::Lsf => "LSF",
            Self::Sge => "Grid Engine",
            Self::Horovod => "Horovod",
            Self::Ranges => "host range",
        })
    }
}

/// Options for reading a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The dialect; `None`: detect it.
    pub dialect: Option<Dialect>,
    /// Slots of hosts without a slot count.
    pub slots: Option<SlotCount>,
}

/// A parsed hostfile: its dialect, its hosts, and its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The dialect in which the text was read.
    pub dialect: Dialect,
    /// The words that identify the dialect; `None` when the caller named it, or for DeepSpeed's.
    pub evidence: Option<Span>,
    /// The hosts of the valid lines.
    pub hostfile: Hostfile,
    /// The text and its problems.
    pub findings: Findings,
    /// Settings that are valid but have no equivalent in a pool, such as a `queue`, and how often
    /// each occurs.
    pub unused: BTreeMap<&'static str, usize>,
}

impl Reading {
    /// A reading without a host.
    fn empty(dialect: Dialect, findings: Findings) -> Self {
        let (hostfile, unused) = (Hostfile::default(), BTreeMap::new());
        Self { dialect, evidence: None, hostfile, findings, unused }
    }

    /// The dialect and its evidence, `Open MPI hostfile: "max_slots=8" on line 3`; `None` for
    /// DeepSpeed's, and when the caller named the dialect.
    pub fn show_evidence(&self) -> Option<String> {
        let span = self.evidence?;
        let text = &self.findings.source.text;
        let line = text[..span.start].bytes().filter(|byte| *byte == b'\n').count() + 1;
        let words = text[span.start..span.end].trim_end();
        let shown: String = words.chars().take(EVIDENCE_CHARS_MAX).collect();
        let more = if shown.len() < words.len() { "..." } else { "" };
        Some(format!(
            "read as {}: `{}{more}` on line {line}",
            with_article(self.dialect),
            show_typed(&shown)
        ))
    }
}

/// Limit of the characters of the evidence that are shown.
const EVIDENCE_CHARS_MAX: usize = 40;

fn article(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenMpi | Dialect::Hydra | Dialect::Lsf => "an",
        _ => "a",
    }
}

/// The dialect with its article: `an Open MPI hostfile`.
pub(super) fn with_article(dialect: Dialect) -> String {
    match dialect {
        Dialect::Ranges => "a hostfile with host ranges".to_owned(),
        _ => format!("{} {dialect} hostfile", article(dialect)),
    }
}

/// Reads the bytes of a hostfile named `name` in any dialect.
pub fn read_any(name: &str, bytes: &[u8], options: ReadOptions) -> Reading {
    let (source, diagnostics) = decode(name, bytes);
    // A problem of the whole file is reported once: the content of its lines was guessed.
    if diagnostics.iter().any(|diagnostic| diagnostic.span.is_none()) {
        let findings = Findings { source, diagnostics };
        return Reading::empty(options.dialect.unwrap_or(Dialect::DeepSpeed), findings);
    }
    let mut parsed =
        parse_as(&source, options.dialect.unwrap_or(Dialect::DeepSpeed), options.slots);
    if options.dialect.is_none()
        && parsed.is_doubtful()
        && let Some(problem) = foreign::not_a_hostfile(&source.text)
    {
        let findings = Findings { source, diagnostics: vec![problem] };
        return Reading::empty(Dialect::DeepSpeed, findings);
    }
    let mut evidence = None;
    if options.dialect.is_none()
        && parsed.is_doubtful()
        && let Some(detected) = detect::detect(&source)
    {
        let other = parse_as(&source, detected.dialect, options.slots);
        // A few lines of another dialect do not decide for it, unless it has at most as many
        // errors.
        if !detected.is_minority || other.error_count() <= parsed.error_count() {
            parsed = other;
            evidence = Some(detected.evidence);
        }
    }
    if parsed.dialect == Dialect::DeepSpeed && !has_setting(&source.text) {
        parsed.problems.iter_mut().for_each(mark_as_guess);
    }
    let findings = merge_in_order(source, diagnostics, parsed.problems);
    let (dialect, hostfile, unused) = (parsed.dialect, parsed.hostfile, parsed.unused);
    Reading { dialect, evidence, hostfile, findings, unused }
}

/// Whether a line has a `key=value` setting; without any, a number may be something else than a
/// slot count.
fn has_setting(text: &str) -> bool {
    text.lines().any(|line| line.split('#').next().is_some_and(|line| line.contains('=')))
}

fn mark_as_guess(problem: &mut Diagnostic) {
    if let Some(change) = &mut problem.suggestion {
        change.applicability = Applicability::Guess;
    }
}

struct Parsed {
    dialect: Dialect,
    hostfile: Hostfile,
    problems: Vec<Diagnostic>,
    unused: BTreeMap<&'static str, usize>,
}

impl Parsed {
    fn error_count(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// Whether the text may be in another dialect.
    fn is_doubtful(&self) -> bool {
        self.problems.iter().any(|problem| {
            problem.severity == Severity::Error || problem.code == codes::OTHER_DIALECT
        })
    }
}

fn parse_as(source: &Source, dialect: Dialect, default_slots: Option<SlotCount>) -> Parsed {
    let mut reader = Reader::new(default_slots);
    match dialect {
        Dialect::DeepSpeed => parse_deepspeed(source, &mut reader),
        Dialect::OpenMpi => openmpi::parse(source, &mut reader),
        Dialect::Slurm => slurm::parse(source, &mut reader),
        Dialect::Lsf => lsf::parse(source, &mut reader),
        Dialect::Hydra => parse_by_line(source, &mut reader, dialect, hydra::parse_line),
        Dialect::Pbs => parse_by_line(source, &mut reader, dialect, pbs::parse_line),
        Dialect::Sge => parse_by_line(source, &mut reader, dialect, sge::parse_line),
        Dialect::Horovod => parse_by_line(source, &mut reader, dialect, horovod::parse_line),
        Dialect::Ranges => {
            let style = ranges::SlotsStyle::of(has_setting(&source.text));
            parse_by_line(source, &mut reader, dialect, |reader, position, words| {
                ranges::parse_line(reader, position, words, style);
            });
        }
    }
    let unused = std::mem::take(&mut reader.unused);
    let (hostfile, problems) = reader.finish(source);
    Parsed { dialect, hostfile, problems, unused }
}

/// Parses the words of every line in a dialect, except lines that clearly belong to another
/// dialect.
fn parse_by_line(
    source: &Source,
    reader: &mut Reader,
    dialect: Dialect,
    mut parse: impl FnMut(&mut Reader, LinePosition, &[HostToken<'_>]),
) {
    for_each_line(source, LIST_BYTES_MAX, reader, |reader, position, line| {
        let found = words(line, position.span.start);
        let Some(&first) = found.first() else { return };
        let content = line_without_comment(line, position.span.start, first);
        check_characters(content, position.span.start, &mut reader.problems);
        match shape::other_dialect(&found, dialect) {
            Some(other) => reader.add_problem(shape::mixed_dialects(&found, dialect, other)),
            None => parse(reader, position, &found),
        }
    });
}

#[cfg(test)]
mod tests;

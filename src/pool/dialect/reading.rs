//! Reading of a text in a dialect, given or detected.

use std::collections::BTreeMap;

use super::{detect, foreign, horovod, hydra, lsf, openmpi, pbs, ranges, sge, slurm};
use crate::base::{Applicability, Diagnostic, Findings, Severity, Source, Span, show_typed};
use crate::pool::codes;
use crate::pool::dialect::kind::{Dialect, EVIDENCE_CHARS_MAX, with_article};
use crate::pool::dialect::lines::parse_by_line;
use crate::pool::hostfile::hosts::{Hostfile, SlotCount, SlotsOption};
use crate::pool::hostfile::parse::{merge_in_order, parse_deepspeed};
use crate::pool::hostfile::reader::Reader;
use crate::pool::text::decode;

/// Options for reading a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The dialect; `None`: detect it.
    pub dialect: Option<Dialect>,
    /// Slots of hosts without a slot count.
    pub slots: Option<SlotCount>,
    /// The option for these slots, for advice.
    pub slots_option: SlotsOption,
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

/// Reads the bytes of a hostfile named `name` in any dialect.
pub fn read_any(name: &str, bytes: &[u8], options: ReadOptions) -> Reading {
    let (source, diagnostics) = decode(name, bytes);
    // A problem of the whole file is reported once: the content of its lines was guessed.
    if diagnostics.iter().any(|diagnostic| diagnostic.span.is_none()) {
        let findings = Findings { source, diagnostics };
        return Reading::empty(options.dialect.unwrap_or(Dialect::DeepSpeed), findings);
    }
    let mut parsed = parse_as(&source, options.dialect.unwrap_or(Dialect::DeepSpeed), options);
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
        let other = parse_as(&source, detected.dialect, options);
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

fn parse_as(source: &Source, dialect: Dialect, options: ReadOptions) -> Parsed {
    let mut reader = Reader::new(options.slots, options.slots_option);
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

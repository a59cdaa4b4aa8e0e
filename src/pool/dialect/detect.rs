//! Detection of a text's dialect: the dialect that fits most lines.

use std::collections::HashSet;

use super::shape::LineShape;
use crate::base::{Source, Span};
use crate::pool::dialect::kind::Dialect;
use crate::pool::hostfile::line::words;
use crate::pool::hostfile::parse::lines;

/// A dialect other than DeepSpeed's, and the evidence for it.
pub(super) struct Detected {
    pub(super) dialect: Dialect,
    pub(super) evidence: Span,
    /// Whether more lines are characteristic of DeepSpeed than of this dialect.
    pub(super) is_minority: bool,
}

#[derive(Default)]
struct Votes([Vote; Dialect::ALL.len()]);

/// The evidence for one dialect of [`Dialect::ALL`].
#[derive(Clone, Copy, Default)]
struct Vote {
    /// Number of lines that are valid in it.
    lines: usize,
    /// Number of those lines whose form belongs to this dialect first.
    primary_lines: usize,
    /// The first of the lines counted in `primary_lines`.
    evidence: Option<Span>,
}

impl Votes {
    fn add(&mut self, shape: LineShape, span: Span) {
        for (rank, dialect) in shape.dialects().iter().enumerate() {
            let index = Dialect::ALL.iter().position(|other| other == dialect);
            let vote = &mut self.0[index.expect("ALL contains every dialect")];
            vote.lines += 1;
            if rank == 0 {
                vote.primary_lines += 1;
                vote.evidence.get_or_insert(span);
            }
        }
    }

    /// The dialect with the most lines; of equal ones, that with the most lines of its own, then
    /// the earlier dialect.
    fn winner(&self) -> Option<Detected> {
        let candidates = Dialect::ALL.into_iter().zip(&self.0);
        let best = candidates.filter(|(_, vote)| 0 < vote.primary_lines).rev();
        let (dialect, vote) = best.max_by_key(|(_, vote)| (vote.lines, vote.primary_lines))?;
        let deepspeed = Dialect::ALL.iter().position(|other| *other == Dialect::DeepSpeed);
        let deepspeed = &self.0[deepspeed.expect("ALL contains every dialect")];
        Some(Detected {
            dialect,
            evidence: vote.evidence?,
            is_minority: vote.primary_lines < deepspeed.primary_lines,
        })
    }
}

/// Detects the dialect by counting lines. `None`: DeepSpeed's, or undecided.
pub(super) fn detect(source: &Source) -> Option<Detected> {
    let mut votes = Votes::default();
    let mut bare = BareHosts::default();
    let mut other_lines = 0;
    for (_, line, start) in lines(&source.text) {
        let words = words(line, start);
        match LineShape::of(&words) {
            None => {}
            Some((LineShape::Bare, word)) => bare.add(word.text, word.span),
            Some((shape, word)) => {
                other_lines += 1;
                votes.add(shape, word.span);
            }
        }
    }
    // A list of bare hosts has no slot counts, unless a host is repeated.
    if let Some(repeated) = bare.repeated
        && other_lines == 0
    {
        return Some(Detected { dialect: Dialect::Pbs, evidence: repeated, is_minority: false });
    }
    let is_bare = !bare.seen.is_empty();
    votes.winner().filter(|detected| match detected.dialect {
        Dialect::DeepSpeed => false,
        // `host` beside `host 4` is a host whose count was forgotten.
        Dialect::Lsf => !is_bare,
        Dialect::OpenMpi
        | Dialect::Hydra
        | Dialect::Slurm
        | Dialect::Pbs
        | Dialect::Sge
        | Dialect::Horovod
        | Dialect::Ranges => true,
    })
}

#[derive(Default)]
struct BareHosts<'a> {
    seen: HashSet<&'a str>,
    repeated: Option<Span>,
}

impl<'a> BareHosts<'a> {
    fn add(&mut self, text: &'a str, span: Span) {
        if !self.seen.insert(text) {
            self.repeated.get_or_insert(span);
        }
    }
}

//! Which dialect a text is in: the one for which most lines speak.

use std::collections::HashSet;

use crate::base::{Source, Span};
use crate::pool::line::words;
use crate::pool::parse::lines;

use super::Dialect;
use super::shape::LineShape;

/// A dialect other than DeepSpeed's, and what speaks for it.
pub(super) struct Detected {
    pub(super) dialect: Dialect,
    pub(super) evidence: Span,
    /// Whether more lines are DeepSpeed's own than are this dialect's own.
    pub(super) is_minority: bool,
}

#[derive(Default)]
struct Votes([Vote; Dialect::ALL.len()]);

/// What speaks for one of [`Dialect::ALL`].
#[derive(Clone, Copy, Default)]
struct Vote {
    /// Lines that are at home in it.
    lines: usize,
    /// Those of them that are at home there before all.
    own: usize,
    /// The first of these.
    evidence: Option<Span>,
}

impl Votes {
    fn add(&mut self, shape: LineShape, span: Span) {
        for (rank, dialect) in shape.dialects().iter().enumerate() {
            let place = Dialect::ALL.iter().position(|other| other == dialect);
            let vote = &mut self.0[place.expect("ALL has them all")];
            vote.lines += 1;
            if rank == 0 {
                vote.own += 1;
                vote.evidence.get_or_insert(span);
            }
        }
    }

    /// The most lines; among equals the most that are its own, then the earlier dialect.
    fn winner(&self) -> Option<Detected> {
        let candidates = Dialect::ALL.into_iter().zip(&self.0);
        let best = candidates.filter(|(_, vote)| 0 < vote.own).rev();
        let (dialect, vote) = best.max_by_key(|(_, vote)| (vote.lines, vote.own))?;
        let deepspeed = Dialect::ALL.iter().position(|other| *other == Dialect::DeepSpeed);
        let deepspeed = &self.0[deepspeed.expect("ALL has them all")];
        Some(Detected { dialect, evidence: vote.evidence?, is_minority: vote.own < deepspeed.own })
    }
}

/// Lets the lines vote. `None`: DeepSpeed's, or nobody's.
pub(super) fn detect(source: &Source) -> Option<Detected> {
    let mut votes = Votes::default();
    let mut bare = Bare::default();
    let mut others = 0;
    for (_, line, start) in lines(&source.text) {
        let words = words(line, start);
        match LineShape::of(&words) {
            None => {}
            Some((LineShape::Bare, word)) => bare.add(word.text, word.span),
            Some((shape, word)) => {
                others += 1;
                votes.add(shape, word.span);
            }
        }
    }
    // A list of hosts says no slots, unless some come more than once.
    if let Some(repeated) = bare.repeated
        && others == 0
    {
        return Some(Detected { dialect: Dialect::Pbs, evidence: repeated, is_minority: false });
    }
    let is_bare = !bare.seen.is_empty();
    votes.winner().filter(|detected| match detected.dialect {
        Dialect::DeepSpeed => false,
        // `host` beside `host 4` is a number that was forgotten.
        Dialect::Lsf => !is_bare,
        _ => true,
    })
}

#[derive(Default)]
struct Bare<'a> {
    seen: HashSet<&'a str>,
    repeated: Option<Span>,
}

impl<'a> Bare<'a> {
    fn add(&mut self, text: &'a str, span: Span) {
        if !self.seen.insert(text) {
            self.repeated.get_or_insert(span);
        }
    }
}

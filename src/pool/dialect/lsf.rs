//! LSF: `LSB_MCPU_HOSTS="a 2 b 2"`, `LSB_HOSTS="a a b b"`, and files with `host [slots]` a line.

use crate::pool::host_word::read_host;
use crate::pool::hosts::SlotCount;
use crate::pool::line::{Line, Word, words};
use crate::pool::reader::{Place, Reader, Repeats};
use crate::pool::settings::parse_count;

use super::shape::is_number;
use super::variables::variable;

pub(super) fn parse_line(reader: &mut Reader, place: Place, found: &[Word<'_>]) {
    // A variable is a line of its own: its value is taken apart, quotes and all.
    let Some(first) = found.first() else { return };
    if super::variables::owner(first.text).is_none() {
        return hosts(reader, place, found);
    }
    let (from, to) = (first.span.start, found[found.len() - 1].span.end);
    let length = |word: &Word<'_>| word.span.end - from;
    let mut line = " ".repeat(to - from);
    for word in found {
        line.replace_range(length(word) - word.text.len()..length(word), word.text);
    }
    // Other variables of LSF say nothing of hosts.
    if let Some(("LSB_MCPU_HOSTS" | "LSB_HOSTS", value)) = variable(&line, from) {
        hosts(reader, place, &words(value.text, value.span.start));
    }
}

/// A host and its number, or a host for each slot.
fn hosts(reader: &mut Reader, place: Place, mut rest: &[Word<'_>]) {
    while let Some((&host, after)) = rest.split_first() {
        let mut line = Line::default();
        read_host(host, &[], &mut line);
        let count = after.first().copied().filter(|next| is_number(next.text));
        match count.map(parse_count) {
            Some(Ok(count)) => line.slots = Some(count),
            Some(Err(problem)) => line.problems.push(*problem),
            None => line.slots = SlotCount::new(1),
        }
        rest = &after[usize::from(count.is_some())..];
        reader.take(place, line, Repeats::Added);
    }
}

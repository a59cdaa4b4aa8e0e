//! The dialect of LSF: `LSB_MCPU_HOSTS="a 2 b 2"`, `LSB_HOSTS="a a b b"`, and files with `host
//! [slots]` on each line.

use super::shape::is_number;
use super::variables::split_variable;
use crate::base::{Source, Span};
use crate::pool::dialect::kind::Dialect;
use crate::pool::dialect::lines::parse_by_line;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::read_host;
use crate::pool::hostfile::hosts::SlotCount;
use crate::pool::hostfile::line::words;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::hostfile::settings::{CountSyntax, parse_count_of};

pub(super) fn parse(source: &Source, reader: &mut Reader) {
    parse_by_line(source, reader, Dialect::Lsf, |reader, position, found| {
        let Span { start, end } = position.span;
        match split_variable(&source.text[start..end], start) {
            Some(("LSB_MCPU_HOSTS" | "LSB_HOSTS", value)) => {
                parse_hosts(reader, position, &words(value.text, value.span.start));
            }
            // Other variables of LSF do not name hosts.
            Some(_) => {}
            None => parse_hosts(reader, position, found),
        }
    });
}

/// Reads hosts, each followed by its slot count or repeated once for each slot.
fn parse_hosts(reader: &mut Reader, position: LinePosition, mut rest: &[HostToken<'_>]) {
    while let Some((&host, after)) = rest.split_first() {
        let mut line = HostLine::default();
        read_host(host, &[], &mut line);
        let count = after.first().copied().filter(|next| is_number(next.text));
        match count.map(|count| parse_count_of(CountSyntax::Word, count)) {
            Some(Ok(count)) => line.slots = Some(count),
            Some(Err(problem)) => line.problems.push(*problem),
            None => line.slots = SlotCount::new(1),
        }
        rest = &after[usize::from(count.is_some())..];
        reader.add_line(position, line, RepeatedHost::AddSlots);
    }
}

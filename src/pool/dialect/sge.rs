//! The dialect of Grid Engine: `host slots queue@host processors`; a host may occur once for each
//! queue.

use crate::base::{Diagnostic, show_typed};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::read_host;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::hostfile::settings::{CountSyntax, parse_count_of};

pub(super) fn parse_line(reader: &mut Reader, position: LinePosition, words: &[HostToken<'_>]) {
    let Some((&first, rest)) = words.split_first() else { return };
    let mut line = HostLine::default();
    read_host(first, &[], &mut line);
    match rest.first().map(|count| parse_count_of(CountSyntax::Word, *count)) {
        Some(Ok(count)) => line.slots = Some(count),
        Some(Err(problem)) => line.problems.push(*problem),
        None => line.problems.push(
            Diagnostic::error(codes::MISSING_SLOTS, first.span, "the number of slots is missing")
                .label("expected `host slots queue processors`")
                .help("set the number of workers of the host: `worker-0 4`"),
        ),
    }
    if let Some(word) = rest.get(3) {
        let message = format!("unexpected `{}`", show_typed(word.text));
        line.problems.push(
            Diagnostic::error(codes::UNEXPECTED_TEXT, word.span, message)
                .label("expected the end of the line")
                .help("a line is `host slots queue processors`"),
        );
    }
    *reader.unused.entry("queue").or_default() += usize::from(1 < rest.len());
    reader.add_line(position, line, RepeatedHost::AddSlots);
}

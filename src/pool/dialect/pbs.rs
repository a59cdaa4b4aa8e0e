//! The dialect of PBS and Torque: the node file has one line for each slot.

use crate::base::{Diagnostic, Span, show_typed};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::read_host;
use crate::pool::hostfile::hosts::SlotCount;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};

pub(super) fn parse_line(reader: &mut Reader, position: LinePosition, words: &[HostToken<'_>]) {
    let Some((&first, rest)) = words.split_first() else { return };
    let mut line = HostLine { slots: SlotCount::new(1), ..HostLine::default() };
    read_host(first, rest, &mut line);
    if let (Some(word), Some(last)) = (rest.first(), rest.last()) {
        let span = Span::new(word.span.start, last.span.end);
        let message = format!("unexpected `{}`", show_typed(word.text));
        line.problems.push(
            Diagnostic::error(codes::UNEXPECTED_TEXT, span, message)
                .label("expected the end of the line")
                .help("a node file has one host per line, and one line for each slot"),
        );
    }
    reader.add_line(position, line, RepeatedHost::AddSlots);
}

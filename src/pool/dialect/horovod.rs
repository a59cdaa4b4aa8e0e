//! The dialect of Horovod: `h1:4,h2:4`.

use super::hydra::split_count;
use crate::base::{Diagnostic, Span, show_typed};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::read_host;
use crate::pool::hostfile::hosts::SlotsOption;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::hostfile::settings::{CountSyntax, parse_count_of};

pub(super) fn parse_line(reader: &mut Reader, position: LinePosition, words: &[HostToken<'_>]) {
    for word in words {
        let mut at = 0;
        for part in word.text.split(',') {
            parse_item(reader, position, word.part(at, at + part.len()));
            at += part.len() + 1;
        }
    }
}

fn parse_item(reader: &mut Reader, position: LinePosition, word: HostToken<'_>) {
    if word.text.is_empty() {
        reader.add_problem(empty_item(word.span));
        return;
    }
    let mut line = HostLine::default();
    let (host, count) = split_count(word);
    read_host(host, &[], &mut line);
    match count.map(|count| parse_count_of(CountSyntax::Colon, count)) {
        Some(Ok(count)) => line.slots = Some(count),
        Some(Err(problem)) => line.problems.push(*problem),
        None => line.problems.push(missing_count(host, reader.slots_option())),
    }
    reader.add_line(position, line, RepeatedHost::Error);
}

fn empty_item(span: Span) -> Diagnostic {
    Diagnostic::error(codes::HOST_MISSING, span, "a host name is missing next to the comma")
        .help("a list is `h1:4,h2:4`, without spaces and without a final comma")
}

/// The error for a host without a slot count.
pub(super) fn missing_count(host: HostToken<'_>, option: SlotsOption) -> Diagnostic {
    let message = format!("the number of slots of `{}` is missing", show_typed(host.text));
    Diagnostic::error(codes::MISSING_SLOTS, host.span, message)
        .label("expected `:N` after it")
        .help(format!(
            "set the number of workers: `{}:4`, or `{option} 4` for all hosts without it",
            show_typed(host.text)
        ))
}

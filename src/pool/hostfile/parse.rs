//! Parser of hostfile text in DeepSpeed's dialect: hosts and all problems.

use crate::base::order;
use crate::base::{Diagnostic, Findings, Source, Span};
use crate::pool::codes;
use crate::pool::hostfile::hosts::Hostfile;
use crate::pool::hostfile::line::parse_line;
use crate::pool::hostfile::reader::{LinePosition, NAME_A_HOSTFILE, Reader, RepeatedHost};
use crate::pool::text::decode;

/// Limit of the bytes of a line; the content of longer lines is not parsed.
pub const LINE_BYTES_MAX: usize = 4096;

/// Reads the bytes of a hostfile named `name`.
pub fn read(name: &str, bytes: &[u8]) -> (Hostfile, Findings) {
    let (source, diagnostics) = decode(name, bytes);
    // A problem of the whole file is reported once: the content of its lines was guessed.
    if diagnostics.iter().any(|diagnostic| diagnostic.span.is_none()) {
        return (Hostfile::new(Vec::new()), Findings { source, diagnostics });
    }
    let (hostfile, found) = parse(&source);
    (hostfile, merge_in_order(source, diagnostics, found))
}

/// Merges the problems of the bytes and of the text, in the order of the text.
pub(crate) fn merge_in_order(
    source: Source,
    mut diagnostics: Vec<Diagnostic>,
    found: Vec<Diagnostic>,
) -> Findings {
    diagnostics.extend(found);
    order::sort_by_key(&mut diagnostics, |diagnostic| diagnostic.span.map(|span| span.start));
    // The first byte that is not text may be in a host name too: it is reported once.
    diagnostics.dedup_by_key(|diagnostic| (diagnostic.code, diagnostic.span));
    Findings { source, diagnostics }
}

/// Parses a hostfile: the hosts of the valid lines, and all problems in the order of the text.
pub fn parse(source: &Source) -> (Hostfile, Vec<Diagnostic>) {
    let mut reader = Reader::default();
    parse_deepspeed(source, &mut reader);
    reader.finish(source)
}

/// The same, into a reader of the caller.
pub(crate) fn parse_deepspeed(source: &Source, reader: &mut Reader) {
    for_each_line(source, LINE_BYTES_MAX, reader, |reader, position, line| {
        if let Some(parsed) = parse_line(line, position.span.start, reader.slots_option()) {
            reader.add_line(position, parsed, RepeatedHost::Error);
        }
    });
}

/// Visits the lines until there are too many hosts; a line above the limit is reported and not
/// visited.
pub(crate) fn for_each_line(
    source: &Source,
    bytes_max: usize,
    reader: &mut Reader,
    mut read: impl FnMut(&mut Reader, LinePosition, &str),
) {
    reader.reserve(source.text.bytes().filter(|byte| *byte == b'\n').count());
    for (number, line, start) in lines(&source.text) {
        let position = LinePosition { line: number, span: Span::new(start, start + line.len()) };
        if bytes_max < line.len() {
            reader.add_problem(line_too_long(position.span, bytes_max));
        } else {
            read(reader, position, line);
        }
        if reader.is_full() {
            break;
        }
    }
}

/// Line number from 1, the line without its end, and its start byte.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str, usize)> {
    let mut next = 0;
    (1..).map_while(move |number| {
        let start = next;
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        // Lines are short: a plain search finds the byte before an optimized one has started.
        let length = rest.bytes().position(|byte| byte == b'\n').unwrap_or(rest.len());
        next += length + 1;
        let line = &rest[..length];
        Some((number, line.strip_suffix('\r').unwrap_or(line), start))
    })
}

fn line_too_long(span: Span, bytes_max: usize) -> Diagnostic {
    let message = format!("line longer than {bytes_max} bytes: {}", span.end - span.start);
    Diagnostic::error(codes::LINE_TOO_LONG, span, message).help(NAME_A_HOSTFILE)
}

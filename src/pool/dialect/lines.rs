//! Parsing by lines, for dialects with one host in each.

use super::shape;
use crate::base::Source;
use crate::pool::dialect::kind::Dialect;
use crate::pool::hostfile::host_line::HostToken;
use crate::pool::hostfile::line::{check_characters, line_without_comment, words};
use crate::pool::hostfile::parse::for_each_line;
use crate::pool::hostfile::reader::{LinePosition, Reader};

/// Limit of the bytes of a line in dialects other than DeepSpeed's: some have all hosts on one
/// line.
pub(super) const LIST_BYTES_MAX: usize = 4 << 20;

/// Parses the words of every line in a dialect, except lines that clearly belong to another
/// dialect.
pub(super) fn parse_by_line(
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

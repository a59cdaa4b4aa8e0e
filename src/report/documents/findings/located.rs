//! Findings with the lines and columns of their texts.

use crate::base::{Diagnostic, Findings, Severity, Source, Span};
use crate::pool::Pool;
use crate::report::diagnostic::Lines;

/// A file that was checked.
#[derive(Clone, Debug)]
pub struct CheckedFile<'a> {
    /// Its text and its findings.
    pub findings: &'a Findings,
    /// Its hosts with their slots.
    pub hosts: Vec<(&'a str, u32)>,
    /// The pool that a selection leaves of them, if there was one.
    pub world: Option<&'a Pool>,
}

/// A place in a file: lines and columns from 1, columns in characters, the last one excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextRegion {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) end_line: usize,
    pub(super) end_column: usize,
}

/// A diagnostic with its places.
pub(super) struct LocatedDiagnostic<'a> {
    pub(super) file: &'a str,
    pub(super) diagnostic: &'a Diagnostic,
    pub(super) region: Option<TextRegion>,
    /// The place that its suggestion replaces.
    pub(super) replaced_region: Option<TextRegion>,
}

/// All diagnostics of all files.
pub(super) fn locate_diagnostics<'a>(files: &[CheckedFile<'a>]) -> Vec<LocatedDiagnostic<'a>> {
    let mut all = Vec::new();
    for CheckedFile { findings, .. } in files {
        let mut ruler = PositionMapper::new(&findings.source);
        all.extend(findings.diagnostics.iter().map(|found| LocatedDiagnostic {
            file: &findings.source.name,
            diagnostic: found,
            region: found.span.map(|span| ruler.region(span)),
            replaced_region: found.suggestion.as_ref().map(|change| ruler.region(change.span)),
        }));
    }
    all
}

/// Converts byte positions to lines and columns. It continues from its last result if it can,
/// because counting from the start of a line of a megabyte for every finding would take too long.
pub(super) struct PositionMapper<'a> {
    text: &'a str,
    lines: Lines<'a>,
    last: (usize, usize, usize),
}

impl<'a> PositionMapper<'a> {
    fn new(source: &'a Source) -> Self {
        Self { text: &source.text, lines: Lines::new(source), last: (0, 1, 1) }
    }

    fn region(&mut self, span: Span) -> TextRegion {
        let (line, column) = self.position(span.start);
        let (end_line, end_column) = self.position(span.end);
        TextRegion { line, column, end_line, end_column }
    }

    fn position(&mut self, at: usize) -> (usize, usize) {
        let line = self.lines.number(at);
        let (last_at, last_line, last_column) = self.last;
        let column = if line == last_line && last_at <= at {
            last_column + self.text[last_at..at].chars().count()
        } else {
            self.lines.position(at).1
        };
        self.last = (at, line, column);
        (line, column)
    }
}

pub(super) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

//! Findings in files, for programs: JSON, SARIF and the annotations of GitHub.

mod github;
mod json;
mod sarif;

use crate::base::{Diagnostic, Findings, Severity, Source, Span};
use crate::pool::Pool;

use crate::report::diagnostic::Lines;

pub use github::show_github;
pub use json::{FINDINGS_VERSION, show_json};
pub use sarif::show_sarif;

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
struct TextRegion {
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
}

/// A diagnostic with its places.
struct LocatedDiagnostic<'a> {
    file: &'a str,
    diagnostic: &'a Diagnostic,
    region: Option<TextRegion>,
    /// The place that its suggestion replaces.
    replaced_region: Option<TextRegion>,
}

/// All diagnostics of all files.
fn locate_diagnostics<'a>(files: &[CheckedFile<'a>]) -> Vec<LocatedDiagnostic<'a>> {
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
struct PositionMapper<'a> {
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

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

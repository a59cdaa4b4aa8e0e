//! Automatic fixes of a text: the certain suggestions of its diagnostics are applied.

use crate::base::order;
use crate::base::{Applicability, Diagnostic, Findings, Suggestion};
use crate::pool::codes;
use crate::pool::dialect::{ReadOptions, Reading, read_any};

/// Limit of the rounds of fixing and reading again: one fix may reveal another problem.
const ROUNDS_MAX: usize = 8;

/// The result of fixing a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedHostfile {
    /// The text after the fixes, parsed again.
    pub reading: Reading,
    /// The line of each change that was made, in ascending order.
    pub changed_lines: Vec<usize>,
}

/// Applies the certain suggestions of a text, and those of the result, until none is left.
pub fn fix(reading: Reading, options: ReadOptions) -> FixedHostfile {
    let mut fixed = FixedHostfile { reading, changed_lines: Vec::new() };
    for _ in 0..ROUNDS_MAX {
        let source = &fixed.reading.findings.source;
        let (text, changed) = apply(&source.text, certain_changes(&fixed.reading.findings));
        if changed.is_empty() {
            break;
        }
        fixed.changed_lines.extend(changed);
        fixed.reading = read_any(&source.name, text.as_bytes(), options);
    }
    fixed.changed_lines.sort_unstable();
    fixed
}

/// The suggestions that are certain. A file with bytes that are not text gets none: its text
/// differs from its bytes.
pub fn certain_changes(findings: &Findings) -> Vec<&Suggestion> {
    if findings.diagnostics.iter().any(|found| found.code == codes::NOT_TEXT) {
        return Vec::new();
    }
    let all =
        findings.diagnostics.iter().filter_map(|found: &Diagnostic| found.suggestion.as_ref());
    all.filter(|found| found.applicability == Applicability::Certain).collect()
}

/// Applies the changes that do not overlap; returns the text and the line of each change. No change
/// adds or removes a line.
fn apply(text: &str, mut changes: Vec<&Suggestion>) -> (String, Vec<usize>) {
    order::sort_by_key(&mut changes, |change| change.span);
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let (mut line, mut changed) = (1, Vec::new());
    for change in changes {
        if change.span.start < at {
            continue;
        }
        let unchanged = &text[at..change.span.start];
        line += unchanged.bytes().filter(|byte| *byte == b'\n').count();
        changed.push(line);
        out.push_str(unchanged);
        out.push_str(&change.replacement);
        at = change.span.end;
    }
    out.push_str(&text[at..]);
    (out, changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Severity;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let options = ReadOptions::default();
        let fixed = fix(read_any("hosts", text.as_bytes(), options), options);
        assert_eq!(fixed.reading.findings.source.text, expect);
        assert_eq!(fixed.changed_lines.is_empty(), text == expect);
    }

    #[test]
    fn fix_applies_certain_suggestions_only() {
        check("a slots = 4 # fast\nb slots=2\n", "a slots=4 # fast\nb slots=2\n");
        check("a lots=8\nb 4\nc slots=1\n", "a slots=8\nb slots=4\nc slots=1\n");
        check("a slots=1\nb:4\n", "a slots=1\nb slots=4\n");
        check("n12,slots=4\n", "n12 slots=4\n");
        check("ada@n1:slots=4\n", "ada@n1 slots=4\n");
        check("n1 slots=4, n2 slots=4\n", "n1 slots=4, n2 slots=4\n");
        check("::1 slots=4\n", "[::1] slots=4\n");
        check("a\u{a0}slots=4\n", "a slots=4\n");
        check("a slots=4x\n", "a slots=4x\n");
        check("a slots=1\na slots=2\n", "a slots=1\na slots=2\n");
        check("a slots=2 max_slots=4\nb:4\n", "a slots=2 max_slots=4\nb slots=4\n");
        check("n[3-1] slots=2\n", "n[3-1] slots=2\n");
        check("- host: a\n  slots: 4\n", "- host: a\n  slots: 4\n");
        check("a 8\nb 8\nc\n", "a 8\nb 8\nc\n");
        for two in ["a 6 slots=1\n", "a 6 slots = 1\n", "a lots=6 slots=1\n", "a 6 lots=1\n"] {
            check(two, two);
        }
    }

    #[test]
    fn fix_changes_no_file_that_is_not_text() {
        let options = ReadOptions::default();
        let fixed = fix(read_any("hosts", b"a slots = 4\n\xff slots=1\n", options), options);
        assert!(fixed.changed_lines.is_empty());
        assert!(0 < fixed.reading.findings.count(Severity::Error));
    }
}

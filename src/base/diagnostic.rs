//! Diagnostics: the problems of an input text with their positions, as data that `report` renders.

/// An input text of the user, with the name under which diagnostics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A path, or the flag that carried the text (`--include`).
    pub name: String,
    /// The text itself.
    pub text: String,
}

impl Source {
    /// Number of the line that contains a byte, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

/// A range of bytes of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Byte offset of the first byte.
    pub start: usize,
    /// Byte offset one past the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` to just before `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// The same range, `by` bytes further on.
    #[must_use]
    pub fn shifted(self, by: usize) -> Self {
        Self { start: self.start + by, end: self.end + by }
    }
}

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Information; the input is accepted.
    Note,
    /// The input is accepted, but is probably not what was meant.
    Warning,
    /// The input is rejected.
    Error,
}

/// Whether a suggested change may be applied without asking the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// The change is what was meant.
    Certain,
    /// The change may be what was meant: the user decides.
    Guess,
}

/// A change that fixes the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The bytes to replace.
    pub span: Span,
    /// The new text for them.
    pub replacement: String,
    /// Whether the change may be applied without asking.
    pub applicability: Applicability,
}

/// One problem of an input text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code, such as `H003`.
    pub code: &'static str,
    /// Whether the input is still accepted.
    pub severity: Severity,
    /// Description of the problem: lower case, no full stop, literals in backticks.
    pub message: String,
    /// Position of the problem; `None` when it concerns the text as a whole.
    pub span: Option<Span>,
    /// Text under the carets.
    pub label: String,
    /// Other positions that the problem involves, with their labels.
    pub related: Vec<(Span, String)>,
    /// What the user can type to fix the problem.
    pub help: Option<String>,
    /// The change that fixes the problem.
    pub suggestion: Option<Suggestion>,
}

impl Diagnostic {
    /// An error at `span`, without label, help or suggestion.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { span: Some(span), ..Self::whole(code, message) }
    }

    /// A warning at `span`, without label, help or suggestion.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// An error that concerns the text as a whole.
    pub fn whole(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            span: None,
            label: String::new(),
            related: Vec::new(),
            help: None,
            suggestion: None,
        }
    }

    /// Sets the severity.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Sets the text under the carets.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds another position, with its label.
    #[must_use]
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }

    /// Sets the help line, which shows what to type.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the change that fixes the text.
    #[must_use]
    pub fn suggest(self, span: Span, replacement: impl Into<String>) -> Self {
        self.with_suggestion(span, replacement.into(), Applicability::Certain)
    }

    /// Sets a change that the user has to confirm.
    #[must_use]
    pub fn guess(self, span: Span, replacement: impl Into<String>) -> Self {
        self.with_suggestion(span, replacement.into(), Applicability::Guess)
    }

    fn with_suggestion(
        mut self,
        span: Span,
        replacement: String,
        applicability: Applicability,
    ) -> Self {
        self.suggestion = Some(Suggestion { span, replacement, applicability });
        self
    }
}

/// The user's text in a message: as typed, except that characters that cannot be seen are escaped.
/// Quotation marks and backslashes stay as they are.
pub fn show_typed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    out
}

/// Explanation of one error code, for `remuda explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The code, such as `H003`.
    pub code: &'static str,
    /// Summary in one line.
    pub title: &'static str,
    /// What is wrong, why it matters and how to fix it.
    pub text: &'static str,
}

/// Creates an [`Explanation`] for a table of codes.
pub const fn explanation(
    code: &'static str,
    title: &'static str,
    text: &'static str,
) -> Explanation {
    Explanation { code, title, text }
}

/// A source with all of its diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// The text that the spans refer to.
    pub source: Source,
    /// Diagnostics in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Findings {
    /// Number of diagnostics with exactly this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
    }

    /// Whether the text cannot be used.
    pub fn has_errors(&self) -> bool {
        0 < self.count(Severity::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_keeps_quotation_marks() {
        assert_eq!(show_typed(r#""foo" 'a\b'"#), r#""foo" 'a\b'"#);
        assert_eq!(show_typed("a\tb\u{1b}[2K\u{202e}"), r"a\tb\u{1b}[2K\u{202e}");
    }
}

//! What is wrong with a text, and where: data, drawn by `report`.

/// A text that the user wrote, with the name under which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A path, or the flag that carried the text (`--include`).
    pub name: String,
    /// The text itself.
    pub text: String,
}

/// A range of bytes of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
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

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Accepted, but probably not what was meant.
    Warning,
    /// Not accepted.
    Error,
}

/// Whether a change may be made without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// It is what was meant.
    Certain,
    /// It may be what was meant: a person decides.
    Guess,
}

/// A change that mends the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// What to replace.
    pub span: Span,
    /// What to write instead.
    pub replacement: String,
    /// Whether the change is certain or the user decides.
    pub applicability: Applicability,
}

/// One thing that is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code, `H003`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong: lower case, no full stop, literals in backticks.
    pub message: String,
    /// Where; `None` when it is the text as a whole.
    pub span: Option<Span>,
    /// What stands under the carets.
    pub label: String,
    /// Other places that belong to it, with their labels.
    pub related: Vec<(Span, String)>,
    /// What to type.
    pub help: Option<String>,
    /// The change that mends it.
    pub suggestion: Option<Suggestion>,
}

impl Diagnostic {
    /// An error with a place and no more.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { span: Some(span), ..Self::whole(code, message) }
    }

    /// The same, as a warning.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// An error of the text as a whole.
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

    /// Changes how bad it is.
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

    /// Adds another place, with its label.
    #[must_use]
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }

    /// Sets the line that says what to type.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the change that mends the text.
    #[must_use]
    pub fn suggest(self, span: Span, replacement: impl Into<String>) -> Self {
        self.change(span, replacement.into(), Applicability::Certain)
    }

    /// Sets a change that may mend the text, if it is what was meant.
    #[must_use]
    pub fn guess(self, span: Span, replacement: impl Into<String>) -> Self {
        self.change(span, replacement.into(), Applicability::Guess)
    }

    fn change(mut self, span: Span, replacement: String, applicability: Applicability) -> Self {
        self.suggestion = Some(Suggestion { span, replacement, applicability });
        self
    }
}

/// The story of one code, for `remuda explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `H003`.
    pub code: &'static str,
    /// One line: what it says.
    pub title: &'static str,
    /// What is wrong, why it matters, what to do.
    pub text: &'static str,
}

/// An [`Explanation`], in a table.
pub const fn story(code: &'static str, title: &'static str, text: &'static str) -> Explanation {
    Explanation { code, title, text }
}

/// A source with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// What the spans point into.
    pub source: Source,
    /// In the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Findings {
    /// How many are that bad.
    pub fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
    }

    /// Whether the text cannot be used.
    pub fn has_errors(&self) -> bool {
        0 < self.count(Severity::Error)
    }
}

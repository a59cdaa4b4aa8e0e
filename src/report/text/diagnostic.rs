//! Formats findings in the style of rustc: code, place, carets, help, and the corrected line.
//!
//! Returns text; the caller prints it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Patch, Renderer, Snippet};

use crate::base::{Diagnostic, Findings, Severity, Source, Span, Suggestion};

/// Whether the text may carry colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Plain ASCII, for files and pipes.
    Plain,
    /// Text with ANSI colour sequences.
    Colour,
}

/// Findings of one code that are drawn; for the rest only the lines are listed.
const SNIPPETS_MAX: usize = 3;
/// Most bytes of a line that is drawn.
const DRAWN_BYTES_MAX: usize = 4096;
/// Most lines between the first and the last place of a finding that is drawn as one.
const DRAWN_LINES_MAX: usize = 10_000;

/// Formats all findings of a source, and their count. Empty for a source without findings; notes
/// are not counted, and neither is a single finding about the whole source, such as a missing file.
pub fn show_findings(findings: &Findings, paint: Paint) -> String {
    let mut out = show_problems(findings, paint);
    let counted = findings.diagnostics.iter().filter(|found| Severity::Note < found.severity);
    let counted: Vec<&Diagnostic> = counted.collect();
    let is_single_whole = matches!(counted[..], [only] if only.span.is_none());
    if !counted.is_empty() && !is_single_whole {
        writeln!(out, "{}", summary(findings)).expect("writing to a String cannot fail");
    }
    out
}

/// Shows where a part of a source begins: `FILE:LINE:COLUMN`.
pub fn show_place(source: &Source, span: Span) -> String {
    let lines = Lines::new(source);
    let (line, column) = lines.position(span.start);
    format!("{}:{line}:{column}", lines.name)
}

/// Formats all findings of a source that needs no count, such as a command line.
pub fn show_problems(findings: &Findings, paint: Paint) -> String {
    let lines = Lines::new(&findings.source);
    let mut out = String::new();
    let mut kinds: BTreeMap<(&'static str, Severity), Vec<&Diagnostic>> = BTreeMap::new();
    for diagnostic in &findings.diagnostics {
        kinds.entry((diagnostic.code, diagnostic.severity)).or_default().push(diagnostic);
    }
    // Folding a single finding into a line would save nothing.
    let is_folded = |kind: &[&Diagnostic]| SNIPPETS_MAX + 1 < kind.len();
    let mut drawn: BTreeMap<(&'static str, Severity), usize> = BTreeMap::new();
    for diagnostic in &findings.diagnostics {
        let kind = (diagnostic.code, diagnostic.severity);
        let drawn = drawn.entry(kind).or_default();
        if *drawn < SNIPPETS_MAX || !is_folded(&kinds[&kind]) {
            *drawn += 1;
            out += &show(diagnostic, &lines, paint);
        }
    }
    for ((code, severity), kind) in kinds.iter().filter(|(_, kind)| is_folded(kind)) {
        out += &show_folded(code, *severity, &kind[SNIPPETS_MAX..], &lines, paint);
    }
    out
}

/// Formats several sources, one after the other.
pub fn show_all<'a>(all: impl IntoIterator<Item = &'a Findings>, paint: Paint) -> String {
    all.into_iter().map(|findings| show_findings(findings, paint)).collect()
}

/// `hosts: 2 errors, 1 warning`; a kind without findings is left out.
fn summary(findings: &Findings) -> String {
    let name = printable(&findings.source.name);
    let kinds = [(Severity::Error, "error"), (Severity::Warning, "warning")];
    let counts = kinds.map(|(severity, noun)| (findings.count(severity), noun));
    let counts = counts.into_iter().filter(|(count, _)| 0 < *count);
    let counts: Vec<String> = counts.map(|(count, noun)| plural(count, noun)).collect();
    format!("{name}: {}", counts.join(", "))
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn show(diagnostic: &Diagnostic, lines: &Lines<'_>, paint: Paint) -> String {
    let title = level(diagnostic.severity)
        .primary_title(printable(&diagnostic.message))
        .id(diagnostic.code);
    let mut has_snippet = false;
    let group = match diagnostic.span.map(|span| (span, Window::around(diagnostic, span, lines))) {
        None => Group::with_title(title).element(Origin::path(lines.name.clone())),
        Some((span, None)) => Group::with_title(title).element(origin(span, lines)),
        Some((span, Some(window))) => {
            has_snippet = true;
            Group::with_title(title).element(annotated(diagnostic, span, &window, lines))
        }
    };
    let renderer = renderer(paint);
    let mut text = match help(diagnostic, lines) {
        None => renderer.render(&[group]),
        Some(help) if has_snippet => renderer.render(&[group, help]),
        // Between two parts the renderer draws a piece of a frame, which is not wanted here.
        Some(help) => renderer.render(&[group]) + "\n" + &renderer.render(&[help]),
    };
    if !has_snippet {
        align_arrow(&mut text);
    }
    text.push('\n');
    text
}

/// Moves the arrow before the name of the source, on the second line, to the column that it has
/// above a snippet.
fn align_arrow(text: &mut String) {
    if let Some(title_end) = text.find('\n') {
        text.insert(title_end + 1, ' ');
    }
}

fn renderer(paint: Paint) -> Renderer {
    match paint {
        Paint::Plain => Renderer::plain(),
        Paint::Colour => Renderer::styled(),
    }
    .decor_style(DecorStyle::Ascii)
}

fn level(severity: Severity) -> Level<'static> {
    match severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    }
}

fn origin(span: Span, lines: &Lines<'_>) -> Origin<'static> {
    let (line, column) = lines.position(span.start);
    Origin::path(lines.name.clone()).line(line).char_column(column)
}

fn annotated<'a>(
    diagnostic: &'a Diagnostic,
    span: Span,
    window: &Window<'a>,
    lines: &Lines<'_>,
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let primary = AnnotationKind::Primary.span(window.range(span));
    let primary = if diagnostic.label.is_empty() {
        primary
    } else {
        primary.label(printable(&diagnostic.label))
    };
    let related = diagnostic.related.iter().map(|(span, label)| {
        let annotation = AnnotationKind::Context.span(window.range(*span));
        if label.is_empty() { annotation } else { annotation.label(printable(label)) }
    });
    window.snippet(lines).annotation(primary).annotations(related)
}

/// The help line, with the change below it if there is one.
fn help<'a>(diagnostic: &'a Diagnostic, lines: &Lines<'a>) -> Option<Group<'a>> {
    let title = Level::HELP.secondary_title(printable(diagnostic.help.as_deref()?));
    let patch = diagnostic.suggestion.as_ref().and_then(|suggestion| patch(suggestion, lines));
    Some(match patch {
        Some(patch) => Group::with_title(title).element(patch),
        None => Group::with_title(title),
    })
}

fn patch<'a>(suggestion: &'a Suggestion, lines: &Lines<'a>) -> Option<Element<'a>> {
    // A patch is drawn unescaped, so a patch that could move the cursor is not drawn at all.
    if suggestion.replacement.contains(char::is_control) {
        return None;
    }
    let window = Window::over(suggestion.span, suggestion.span, lines)?;
    let patch = Patch::new(window.range(suggestion.span), suggestion.replacement.as_str());
    Some(window.snippet(lines).patch(patch).into())
}

/// `error[H004]: 12 more like this`, with the lines.
fn show_folded(
    code: &'static str,
    severity: Severity,
    more: &[&Diagnostic],
    lines: &Lines<'_>,
    paint: Paint,
) -> String {
    let spans = more.iter().filter_map(|diagnostic| diagnostic.span);
    let numbers = spans.map(|span| lines.number(span.start));
    let title = level(severity)
        .primary_title(format!("{} more like this, on {}", more.len(), show_line_ranges(numbers)))
        .id(code);
    let mut text = renderer(paint).render(&[Group::with_title(title)]);
    text.push('\n');
    text
}

/// `lines 3-5, 9`, at most `RANGES_MAX` of them.
pub fn show_line_ranges(numbers: impl Iterator<Item = usize>) -> String {
    const RANGES_MAX: usize = 20;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if number <= *last + 1 => *last = number.max(*last),
            _ => runs.push((number, number)),
        }
    }
    let is_one = matches!(runs[..], [(first, last)] if first == last);
    let shown: Vec<String> = runs.iter().take(RANGES_MAX).map(|run| show_run(*run)).collect();
    let rest = if RANGES_MAX < runs.len() { ", ..." } else { "" };
    format!("{} {}{rest}", if is_one { "line" } else { "lines" }, shown.join(", "))
}

fn show_run((first, last): (usize, usize)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Escapes a text so that it cannot move the cursor or change colours.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// The positions of a source's lines.
pub(in crate::report) struct Lines<'a> {
    name: String,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(in crate::report) fn new(source: &'a Source) -> Self {
        let after_ends = source.text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(after_ends).collect();
        Self { name: printable(&source.name), text: &source.text, starts }
    }

    /// Number of the line that contains a byte, from 1.
    pub(in crate::report) fn number(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    /// Line and column in characters, both from 1.
    pub(in crate::report) fn position(&self, at: usize) -> (usize, usize) {
        let line = self.number(at);
        (line, self.text[self.starts[line - 1]..at].chars().count() + 1)
    }

    /// Byte range of some lines, both ends included, without the last line end.
    fn bytes(&self, first: usize, last: usize) -> Range<usize> {
        let start = self.starts[first - 1];
        let end = self.starts.get(last).map_or(self.text.len(), |next| next - 1);
        start..start + self.text[start..end].trim_end_matches('\r').len()
    }
}

/// The lines that are drawn: a file of a million lines is not passed to the renderer for one of
/// them.
struct Window<'a> {
    first_line: usize,
    start: usize,
    text: Cow<'a, str>,
}

impl<'a> Window<'a> {
    /// The window around all places of a finding; `None` if it is too large to draw.
    fn around(diagnostic: &Diagnostic, span: Span, lines: &Lines<'a>) -> Option<Self> {
        let all = || diagnostic.related.iter().map(|(span, _)| *span).chain([span]);
        let first = all().min_by_key(|span| span.start)?;
        let last = all().max_by_key(|span| span.end)?;
        Self::over(first, last, lines)
    }

    fn over(first: Span, last: Span, lines: &Lines<'a>) -> Option<Self> {
        let first_line = lines.number(first.start);
        let last_line = lines.number(last.end.max(first.end));
        if DRAWN_LINES_MAX < last_line - first_line {
            return None;
        }
        let is_long = |line| DRAWN_BYTES_MAX < lines.bytes(line, line).len();
        if (first_line..=last_line).any(is_long) {
            return None;
        }
        let bytes = lines.bytes(first_line, last_line);
        Some(Self { first_line, start: bytes.start, text: drawable(&lines.text[bytes]) })
    }

    /// The range of a span in the window. Carriage returns before the end of a line are not drawn;
    /// a span may include them.
    fn range(&self, span: Span) -> Range<usize> {
        let within = |at: usize| (at - self.start).min(self.text.len());
        within(span.start)..within(span.end)
    }

    fn snippet<T: Clone>(&self, lines: &Lines<'_>) -> Snippet<'a, T> {
        Snippet::source(self.text.clone()).line_start(self.first_line).path(lines.name.clone())
    }
}

/// Replaces the control characters U+0080 to U+009F, which the renderer does not escape and some
/// terminals obey; ASCII controls are shown as symbols by the renderer. The replacement has as many
/// bytes, so that spans stay valid.
fn drawable(text: &str) -> Cow<'_, str> {
    const STAND_IN: &str = "\u{bf}";
    let is_c1 = |c: char| ('\u{80}'..='\u{9f}').contains(&c);
    if text.contains(is_c1) { text.replace(is_c1, STAND_IN).into() } else { text.into() }
}

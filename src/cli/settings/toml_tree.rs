//! The syntax of TOML, into a tree in which every key and value has its place. Pure.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::base::order;
use crate::base::{Diagnostic, Span};
use crate::config::codes::{NOT_TOML, OPTION_TWICE};

/// Message of the parser for a key that a table has twice.
const DUPLICATE: &str = "duplicate key";

/// The same for a text without quotes.
const UNQUOTED: &str = "string values must be quoted";

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TomlEntry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: TomlNode,
}

/// A value with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TomlNode {
    pub(super) value: TomlValue,
    pub(super) span: Span,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TomlValue {
    Text(String),
    /// A number, in the decimal system.
    Number(String),
    Bool(bool),
    /// A date or a time.
    Time,
    List(Vec<TomlNode>),
    Table(Vec<TomlEntry>),
}

/// Parses a text: the entries outside of tables and the tables, in their order, and all errors of the syntax.
pub(super) fn parse_toml(text: &str) -> (Vec<TomlEntry>, Vec<Diagnostic>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let entries = entries(table.get_ref());
    let problems = errors.iter().map(|error| {
        let span = span(error.span().unwrap_or_default(), text);
        if error.message() == DUPLICATE {
            return duplicate(text, span, &entries);
        }
        // What the grammar allows there is a list of its symbols.
        let why = error.message().split(", expected ").next().unwrap_or_default();
        let problem = Diagnostic::error(NOT_TOML, span, format!("this is not TOML: {why}"));
        let found = &text[span.start..span.end];
        if why == UNQUOTED {
            return problem.label("a text without quotes").help(format!("write `\"{found}\"`"));
        }
        problem.label("here").help("`remuda explain O001` shows what a file looks like")
    });
    let mut problems: Vec<Diagnostic> = problems.collect();
    order::sort_by_key(&mut problems, |problem| problem.span.map(|span| span.start));
    // The others of a line follow from its first one.
    let line =
        |found: &mut Diagnostic| found.span.map(|span| text[..span.start].matches('\n').count());
    problems.dedup_by_key(line);
    (entries, problems)
}

/// A place within the text: that of an error at the end may be behind it.
fn span(range: Range<usize>, text: &str) -> Span {
    Span::new(range.start.min(text.len()), range.end.min(text.len()))
}

fn duplicate(text: &str, place: Span, entries: &[TomlEntry]) -> Diagnostic {
    let key = text[place.start..place.end].trim().trim_matches(['"', '\'']);
    let message = format!("`{key}` is given twice");
    let problem = Diagnostic::error(OPTION_TWICE, place, message)
        .label("given again here")
        .help("keep one of the two");
    match header_before(text, place).or_else(|| key_before(entries, key, place.start)) {
        Some(first) => problem.related(first, "first given here"),
        None => problem,
    }
}

/// The same key in an earlier line that is equal to its line: the header of a table.
fn header_before(text: &str, place: Span) -> Option<Span> {
    let start = text[..place.start].rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next()?.trim_end();
    let ends = text[..start].match_indices('\n').map(|(end, _)| end + 1);
    let is_equal =
        |first: &usize| text[*first..start].lines().next().map(str::trim_end) == Some(line);
    let first = [0].into_iter().chain(ends).find(is_equal).filter(|_| line.starts_with('['))?;
    let column = place.start - start;
    Some(Span::new(first + column, first + column + place.end - place.start))
}

/// The last place of a key before this one: the keys of a table follow each other.
fn key_before(entries: &[TomlEntry], key: &str, at: usize) -> Option<Span> {
    let places = entries.iter().flat_map(|entry| {
        let own = (entry.key == key).then_some(entry.key_span);
        let inner = match &entry.node.value {
            TomlValue::Table(inner) => key_before(inner, key, at),
            TomlValue::Text(_)
            | TomlValue::Number(_)
            | TomlValue::Bool(_)
            | TomlValue::Time
            | TomlValue::List(_) => None,
        };
        own.into_iter().chain(inner)
    });
    places.filter(|span| span.start < at).max_by_key(|span| span.start)
}

fn entries(table: &DeTable<'_>) -> Vec<TomlEntry> {
    let entry = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| TomlEntry {
        key: key.get_ref().to_string(),
        key_span: Span::new(key.span().start, key.span().end),
        node: node(value),
    };
    let mut found: Vec<TomlEntry> = table.iter().map(entry).collect();
    order::sort_by_key(&mut found, |entry| entry.key_span.start);
    found
}

fn node(value: &Spanned<DeValue<'_>>) -> TomlNode {
    let span = Span::new(value.span().start, value.span().end);
    let value = match value.get_ref() {
        DeValue::String(text) => TomlValue::Text(text.to_string()),
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix());
            TomlValue::Number(
                decimal.map_or_else(|_| number.to_string(), |number| number.to_string()),
            )
        }
        DeValue::Float(number) => TomlValue::Number(number.as_str().to_owned()),
        DeValue::Boolean(is_on) => TomlValue::Bool(*is_on),
        DeValue::Datetime(_) => TomlValue::Time,
        DeValue::Array(items) => TomlValue::List(items.iter().map(node).collect()),
        DeValue::Table(table) => TomlValue::Table(entries(table)),
    };
    TomlNode { value, span }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        let (_, problems) = parse_toml(text);
        let found: Vec<String> = problems
            .iter()
            .map(|found| {
                let span = found.span.expect("a place");
                format!("{} {} {:?}", found.code, found.message, &text[span.start..span.end])
            })
            .collect();
        assert_eq!(found, expect, "for {text:?}");
    }

    #[test]
    fn all_errors_of_the_syntax_have_a_place() {
        check("a = 1\n[profile.x]\nb = \"t\"\n", &[]);
        check("a = 1\na = 2\n", &["O005 `a` is given twice \"a\""]);
        check("a = ssh\n", &["O001 this is not TOML: string values must be quoted \"ssh\""]);
    }

    #[test]
    fn numbers_are_decimal_and_entries_in_order() {
        let (entries, problems) = parse_toml("z = 0x10\na = 1_000\n[profile.p]\nk = [1.5, true]\n");
        assert_eq!(problems, []);
        let values: Vec<_> = entries.iter().map(|entry| (&*entry.key, &entry.node.value)).collect();
        assert_eq!(values[0], ("z", &TomlValue::Number("16".into())));
        assert_eq!(values[1], ("a", &TomlValue::Number("1000".into())));
        assert_eq!(values[2].0, "profile");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn places_are_within_the_text(text in "[a-c =\\[\\]\"'\\.\n\r#0-9é]{0,40}") {
            let (entries, problems) = parse_toml(&text);
            for found in &problems {
                let span = found.span.expect("a place");
                prop_assert!(text.get(span.start..span.end).is_some(), "{found:?}");
            }
            for entry in &entries {
                prop_assert!(text.get(entry.key_span.start..entry.key_span.end).is_some());
                prop_assert!(text.get(entry.node.span.start..entry.node.span.end).is_some());
            }
        }
    }
}

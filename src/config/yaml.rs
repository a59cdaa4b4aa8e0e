//! YAML texts as PyYAML's `safe_load` reads them, with the place of every key and value. Pure.
//!
//! The grammar is that of the parser; scalars have the types of YAML 1.1, because the files are written
//! for Python: `no` is false, `'no'` is text, `1e8` is text.

use std::borrow::Cow;

use granit_parser::{Event, Parser, ScalarStyle, ScanError};

use super::tree::{ConfigEntry, ConfigNode, ConfigValue};
use crate::base::Span;

/// Depth of mappings and lists; files of people have two or three.
const DEPTH_MAX: usize = 32;

/// A text that is no YAML, or YAML that remuda does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) message: String,
    pub(crate) span: Span,
    /// An earlier place that the error involves, with its label.
    pub(crate) earlier: Option<(Span, &'static str)>,
}

impl YamlError {
    fn new(message: impl Into<String>, span: Span) -> Self {
        Self { message: message.into(), span, earlier: None }
    }
}

/// Reads a text with one document; an empty text is null.
///
/// # Errors
/// If the text is not YAML, has anchors, tags, a key that is no scalar or a key twice, or has several
/// documents.
pub(crate) fn parse_yaml(text: &str) -> Result<ConfigNode, YamlError> {
    let mut reader = Reader { events: Parser::new_from_str(text), text };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            _ if root.is_some() => {
                return Err(YamlError::new("the file has a second document", span));
            }
            event => root = Some(reader.node(event, span, 0)?),
        }
    }
    Ok(root.unwrap_or(ConfigNode { value: ConfigValue::Null, span: Span::new(0, 0) }))
}

/// Where the first line after the first line break has a tab in its indentation.
fn tab_of_indentation(text: &str) -> Option<usize> {
    let line = text.find('\n')? + 1;
    let tab = text[line..].find(|c| c != ' ')? + line;
    text[tab..].starts_with('\t').then_some(tab)
}

struct Reader<'a> {
    events: Parser<'a, granit_parser::StrInput<'a>>,
    text: &'a str,
}

impl<'a> Reader<'a> {
    /// Returns the next event and its place.
    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        let end = Span::new(self.text.len(), self.text.len());
        let Some(next) = self.events.next_event() else { return Ok((Event::StreamEnd, end)) };
        let (event, place) = next.map_err(|error| self.no_yaml(&error))?;
        Ok((event, place.byte_range().map_or(end, |range| Span::new(range.start, range.end))))
    }

    fn no_yaml(&self, error: &ScanError) -> YamlError {
        let end = self.text.len();
        let at = error.marker().byte_offset().unwrap_or(end).min(end);
        match tab_of_indentation(&self.text[at..]).filter(|_| error.info().contains("tab")) {
            // The parser names the end of the value before the tab.
            Some(tab) => {
                let span = Span::new(at + tab, at + tab + 1);
                YamlError::new("a tab cannot indent a line; write spaces", span)
            }
            None => YamlError::new(error.info(), Span::new(at, at)),
        }
    }

    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        depth: usize,
    ) -> Result<ConfigNode, YamlError> {
        if depth == DEPTH_MAX {
            return Err(YamlError::new("the values are nested too deeply", span));
        }
        if event.anchor_id().is_some() || matches!(event, Event::Alias(_)) {
            return Err(YamlError::new("anchors and aliases are not read", span));
        }
        let value = match event {
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, _, Some(_))
            | Event::MappingStart(_, _, Some(_)) => {
                return Err(YamlError::new("tags are not read", span));
            }
            Event::Scalar(text, style, ..) => scalar(text, style),
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            _ => return Err(YamlError::new("expected a value", span)),
        };
        Ok(ConfigNode { value, span })
    }

    fn list(&mut self, depth: usize) -> Result<ConfigValue, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(ConfigValue::List(items)),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<ConfigValue, YamlError> {
        let mut entries: Vec<ConfigEntry> = Vec::new();
        loop {
            let (key, key_span) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(ConfigValue::Map(entries)),
                (Event::Scalar(text, _, 0, None), span) => (text.into_owned(), span),
                (_, span) => return Err(YamlError::new("expected a plain key", span)),
            };
            if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                let message = format!("the key `{}` is given twice", key.escape_debug());
                let earlier = Some((first.key_span, "first given here"));
                return Err(YamlError { earlier, ..YamlError::new(message, key_span) });
            }
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            entries.push(ConfigEntry { key, key_span, node });
        }
    }
}

/// Gives a scalar the type that YAML 1.1 says. Quoted text is text.
fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> ConfigValue {
    if style != ScalarStyle::Plain {
        return ConfigValue::Text(text.into_owned());
    }
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => ConfigValue::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            ConfigValue::Bool(true)
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            ConfigValue::Bool(false)
        }
        plain => match whole(plain).map(ConfigValue::Whole).or_else(|| float(plain)) {
            Some(number) => number,
            None => ConfigValue::Text(text.into_owned()),
        },
    }
}

/// Reads a whole number: decimal, `0x`, `0b`, or octal after `0`. Sexagesimal numbers stay text.
fn whole(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let (digits, base) = match digits.as_bytes() {
        [b'0', b'x', ..] => (&digits[2..], 16),
        [b'0', b'b', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    let digits = digits.replace('_', "");
    if digits.starts_with(['-', '+']) {
        return None;
    }
    i64::from_str_radix(&digits, base).ok().map(|number| sign * number)
}

/// Reads a number with a point. An exponent needs its sign: `1e8` is text.
fn float(text: &str) -> Option<ConfigValue> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_special = matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN");
    if is_special {
        return text.replacen('.', "", 1).to_lowercase().parse().ok().map(ConfigValue::Float);
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_signed = exponent.is_none_or(|exponent| exponent.starts_with(['-', '+']));
    let has_digits = mantissa.bytes().any(|byte| byte.is_ascii_digit());
    let is_plain = mantissa.bytes().all(|byte| byte.is_ascii_digit() || b"._".contains(&byte));
    if !(mantissa.contains('.') && has_digits && is_plain && is_signed) {
        return None;
    }
    text.replace('_', "").parse().ok().map(ConfigValue::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> ConfigValue {
        let ConfigValue::Map(mut entries) = parse_yaml(text).expect("YAML").value else {
            panic!("`{text}` is no mapping");
        };
        entries.remove(0).node.value
    }

    #[test]
    fn plain_scalars_have_the_types_of_pyyaml() {
        let text = |text: &str| ConfigValue::Text(text.to_owned());
        let expected = [
            ("no", ConfigValue::Bool(false)),
            ("'no'", text("no")),
            ("On", ConfigValue::Bool(true)),
            ("~", ConfigValue::Null),
            ("", ConfigValue::Null),
            ("8", ConfigValue::Whole(8)),
            ("-1", ConfigValue::Whole(-1)),
            ("010", ConfigValue::Whole(8)),
            ("0x1F", ConfigValue::Whole(31)),
            ("1_000", ConfigValue::Whole(1000)),
            ("1.5", ConfigValue::Float(1.5)),
            ("1.0e+3", ConfigValue::Float(1000.0)),
            ("-.inf", ConfigValue::Float(f64::NEG_INFINITY)),
            ("1e8", text("1e8")),
            ("1.0e3", text("1.0e3")),
            ("127.0.0.1", text("127.0.0.1")),
            ("0,1", text("0,1")),
            (".", text(".")),
            ("-", text("-")),
            ("\"8\"", text("8")),
        ];
        for (written, value) in expected {
            if written != "-" {
                assert_eq!(entry(&format!("key: {written}\n")), value, "{written}");
            }
        }
    }

    #[test]
    fn mappings_nest_and_places_are_known() {
        let text = "# comment\na:\n  b: 1 # other\n  c: [x, 'y']\nd: {}\n";
        let ConfigValue::Map(entries) = parse_yaml(text).expect("YAML").value else { panic!() };
        let [a, d] = &entries[..] else { panic!("two entries") };
        assert_eq!(&text[a.key_span.start..a.key_span.end], "a");
        assert_eq!(d.node.value, ConfigValue::Map(Vec::new()));
        let ConfigValue::Map(inner) = &a.node.value else { panic!() };
        let c = &inner[1].node;
        let ConfigValue::List(items) = &c.value else { panic!() };
        assert_eq!(&text[items[1].span.start..items[1].span.end], "'y'");
    }

    #[test]
    fn unsupported_yaml_is_refused_with_its_place() {
        let refused = |text: &str| {
            let error = parse_yaml(text).expect_err("refused");
            (error.message, error.span.start)
        };
        assert_eq!(refused("a: 1\na: 2\n"), ("the key `a` is given twice".to_owned(), 5));
        assert_eq!(refused("a: &x 1\n").0, "anchors and aliases are not read");
        assert_eq!(refused("a: !!str 1\n").0, "tags are not read");
        assert_eq!(refused("a: 1\n---\nb: 2\n").0, "the file has a second document");
        assert_eq!(refused("[a]: 1\n").0, "expected a plain key");
        let tab = "a tab cannot indent a line; write spaces".to_owned();
        assert_eq!(refused("a: 1\n\tb: 2\n"), (tab.clone(), 5));
        assert_eq!(refused("a:\n  b: 1\n \tc: 2\n"), (tab, 11));
        assert!(parse_yaml("a: [1\n").is_err());
        assert!(parse_yaml(&"[".repeat(10_000)).is_err());
    }
}

//! Words without quotes: keys, numbers, `true`, `false`, `null`, and text up to the end of its line.

use super::cursor::{Cursor, Refused, refused, strip, strip_end};
use crate::base::{Diagnostic, Span};
use crate::config::tree::{ConfigNode, ConfigValue};

/// White space between words.
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];
/// Characters that have a meaning of their own.
const PUNCTUATION: [u8; 6] = *b"{}[],:";
/// Numbers with a fraction or an exponent are whole numbers below this, if they are whole.
const WHOLE_BELOW: f64 = 1e10;

/// Reads a key without quotes, up to the colon.
pub(super) fn key(cursor: &mut Cursor<'_>) -> Result<(String, Span), Refused> {
    let start = cursor.at;
    let Some(len) = cursor.rest().find([':', '{', '}', '[', ']', ',']) else {
        return Err(Box::new(no_key(*cursor)));
    };
    let end = start + len;
    let raw = &cursor.text[start..end];
    let found = cursor.text.as_bytes()[end];
    if found != b':' && !strip_end(raw).is_empty() {
        return Err(Box::new(no_key(*cursor)));
    }
    cursor.at = end;
    if found != b':' {
        let message = format!("`{}` where a key is expected", char::from(found));
        return Err(Box::new(refused(cursor.here(), message).label("expected `KEY: VALUE`")));
    }
    if raw.is_empty() {
        let problem = refused(cursor.here(), "the key before `:` is missing");
        return Err(Box::new(problem.label("expected a key before this")));
    }
    let word = raw.trim_end_matches(BLANKS);
    if word.contains(BLANKS) {
        let line = word.split(['\n', '\r']).next().unwrap_or(word);
        let span = Span::new(start, start + strip_end(line).len());
        let problem = refused(span, "a key without quotes contains white space");
        let problem = problem.label("no `:` after the first word");
        return Err(Box::new(problem.help("put the key in quotes, or write `KEY: VALUE`")));
    }
    // Other white space than these blanks is removed only together with them.
    let key = if word.len() == raw.len() { raw } else { strip_end(raw) };
    Ok((key.to_owned(), Span::new(start, start + key.len())))
}

fn no_key(cursor: Cursor<'_>) -> Diagnostic {
    if cursor.byte().is_none() {
        return refused(cursor.here(), "the text ends inside of an object")
            .label("expected a key, or `}`");
    }
    let line = cursor.rest().lines().next().unwrap_or_default();
    let word = line.split([' ', '\t', '{', '}', '[', ']', ',']).next().unwrap_or(line);
    let span = Span::new(cursor.at, cursor.at + word.len());
    refused(span, "a key without a value").label("no `:` after it").help("write `KEY: VALUE`")
}

/// Reads a value without quotes.
pub(super) fn value(cursor: &mut Cursor<'_>) -> Result<ConfigNode, Refused> {
    let start = cursor.at;
    let Some(first) = cursor.byte() else {
        return Err(Box::new(
            refused(cursor.here(), "a value is missing").label("the text ends here"),
        ));
    };
    if PUNCTUATION.contains(&first) {
        let message = format!("`{}` where a value is expected", char::from(first));
        return Err(Box::new(refused(cursor.here(), message).label("expected a value")));
    }
    let rest = cursor.rest();
    let (word, end) = first_part(rest);
    if let Some(value) = constant(word, start)? {
        cursor.at = start + end;
        return Ok(ConfigNode { value, span: Span::new(start, start + strip_end(word).len()) });
    }
    let line = &rest[..rest.find(['\r', '\n']).unwrap_or(rest.len())];
    cursor.at = start + line.len();
    let text = strip(line);
    // White space outside of ASCII can stand before the text.
    let start = start + strip_end(line).len() - text.len();
    let span = Span::new(start, start + text.len());
    if let Some(problem) = not_a_number(text, span) {
        return Err(Box::new(problem));
    }
    Ok(ConfigNode { value: ConfigValue::Text(text.to_owned()), span })
}

/// The text up to the first character that can end a number, and its length.
fn first_part(rest: &str) -> (&str, usize) {
    let bytes = rest.as_bytes();
    let ends = |at: &usize| match bytes[*at] {
        b'\r' | b'\n' | b',' | b'}' | b']' | b'#' => true,
        b'/' => matches!(bytes.get(at + 1), Some(b'/' | b'*')),
        _ => false,
    };
    let end = (0..bytes.len()).find(ends).unwrap_or(bytes.len());
    (&rest[..end], end)
}

/// The value of a word that is not text.
fn constant(word: &str, start: usize) -> Result<Option<ConfigValue>, Refused> {
    Ok(match strip_end(word) {
        "null" => Some(ConfigValue::Null),
        "true" => Some(ConfigValue::Bool(true)),
        "false" => Some(ConfigValue::Bool(false)),
        _ => {
            let number = word.trim_end_matches(['\t', ' ']);
            let Some(is_whole) = number_form(number) else { return Ok(None) };
            Some(number_value(number, is_whole, start)?)
        }
    })
}

/// Whether a word is a number of JSON, and then whether it has neither fraction nor exponent.
fn number_form(word: &str) -> Option<bool> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = word.strip_prefix('-').unwrap_or(word);
    let whole = digits(rest);
    if whole == 0 || 1 < whole && rest.starts_with('0') {
        return None;
    }
    rest = &rest[whole..];
    let mut is_whole = true;
    if let Some(fraction) = rest.strip_prefix('.') {
        let count = digits(fraction);
        rest = fraction.get(count..).filter(|_| 0 < count)?;
        is_whole = false;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let count = digits(unsigned);
        rest = unsigned.get(count..).filter(|_| 0 < count)?;
        is_whole = false;
    }
    rest.is_empty().then_some(is_whole)
}

fn number_value(word: &str, is_whole: bool, start: usize) -> Result<ConfigValue, Refused> {
    let span = Span::new(start, start + word.len());
    if is_whole {
        return word.parse().map(ConfigValue::Whole).map_err(|_| too_large(span));
    }
    let number: f64 = word.parse().map_err(|_| too_large(span))?;
    if number.is_infinite() {
        return Err(too_large(span));
    }
    let is_small = number.abs() < WHOLE_BELOW && number.fract() == 0.0;
    Ok(if is_small { ConfigValue::Whole(number as i64) } else { ConfigValue::Float(number) })
}

fn too_large(span: Span) -> Refused {
    Box::new(refused(span, "the number is too large").label("larger than a 64-bit number"))
}

/// The problem of a text that is meant as a number which JSON lacks.
fn not_a_number(text: &str, span: Span) -> Option<Diagnostic> {
    let words = ["NaN", "Infinity", "-Infinity"];
    let word = words.into_iter().find(|word| {
        let rest = text.strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([',', '}', ']', ' ']))
    })?;
    let span = Span::new(span.start, span.start + word.len());
    Some(refused(span, format!("`{word}` is not a number")).label("no setting can have this value"))
}

//! Text in quotes: on one line with escapes, or on several lines between `'''`.

use super::cursor::{Cursor, Refused, refused};
use crate::base::Span;

/// Reads text in single or double quotes; the position is at the first one.
pub(super) fn quoted(cursor: &mut Cursor<'_>) -> Result<String, Refused> {
    let start = cursor.at;
    let quote = cursor.byte();
    cursor.at += 1;
    let mut text = String::new();
    loop {
        let rest = cursor.rest();
        let stop = rest.find(|c: char| matches!(c, '"' | '\'' | '\\') || c < '\u{20}');
        let Some(stop) = stop else { return Err(not_closed(start)) };
        text += &rest[..stop];
        cursor.at += stop;
        match cursor.byte() {
            Some(b'\\') => text.push(escape(cursor, start)?),
            found if found == quote => {
                cursor.at += 1;
                return Ok(text);
            }
            Some(other @ (b'"' | b'\'')) => {
                text.push(char::from(other));
                cursor.at += 1;
            }
            _ => return Err(control_character(*cursor, start)),
        }
    }
}

fn not_closed(start: usize) -> Refused {
    let open = Span::new(start, start + 1);
    Box::new(refused(open, "the text is not closed").label("its first quotation mark"))
}

fn control_character(cursor: Cursor<'_>, start: usize) -> Refused {
    let byte = cursor.byte().unwrap_or_default();
    if byte == b'\n' || byte == b'\r' {
        let line = Span::new(start, cursor.at);
        let problem = refused(line, "the text does not end on its line").label("no second quote");
        return Box::new(problem.help("close the quotes; text of several lines is between `'''`"));
    }
    let problem = refused(cursor.here(), "a control character in a text");
    let escape = if byte == b'\t' { "\\t".to_owned() } else { format!("\\u{byte:04x}") };
    Box::new(problem.label(format!("byte 0x{byte:02x}")).help(format!("write it as `{escape}`")))
}

/// Reads an escape sequence; the position is at its backslash.
fn escape(cursor: &mut Cursor<'_>, start: usize) -> Result<char, Refused> {
    let at = cursor.at;
    cursor.at += 1;
    let Some(letter) = cursor.rest().chars().next() else { return Err(not_closed(start)) };
    let plain = match letter {
        '"' | '\'' | '\\' | '/' => Some(letter),
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'u' => return unicode_escape(cursor),
        _ => None,
    };
    cursor.step();
    let Some(plain) = plain else {
        let problem = refused(cursor.since(at), "an unknown escape sequence in a text");
        return Err(Box::new(problem.label("unknown").help("write a backslash as `\\\\`")));
    };
    Ok(plain)
}

/// Reads the `u` and four digits of an escape sequence, and those of the second half of a pair.
fn unicode_escape(cursor: &mut Cursor<'_>) -> Result<char, Refused> {
    let first = four_digits(cursor)?;
    let mut second = *cursor;
    if first & 0xfc00 == 0xd800 && cursor.rest().starts_with("\\u") {
        second.at += 1;
        let low = four_digits(&mut second)?;
        if low & 0xfc00 == 0xdc00 {
            *cursor = second;
            let code = 0x1_0000 + ((first - 0xd800) << 10 | (low - 0xdc00));
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
    // Half of a pair, which Python keeps; a text of Rust has no place for it.
    Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn four_digits(cursor: &mut Cursor<'_>) -> Result<u32, Refused> {
    let start = cursor.at - 1;
    let digits = cursor.text.get(cursor.at + 1..cursor.at + 5);
    let is_hex = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits.filter(is_hex).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let Some(number) = number else {
        cursor.at += 1;
        let problem = refused(cursor.since(start), "`\\u` is not followed by four digits");
        return Err(Box::new(problem.label("expected hexadecimal digits after this")));
    };
    cursor.at += 5;
    Ok(number)
}

/// Reads text of several lines; the position is at its first `'''`. Blanks are removed from every
/// line up to the column of the quotation marks, and the last line end is removed.
pub(super) fn multiline(cursor: &mut Cursor<'_>) -> Result<String, Refused> {
    let start = cursor.at;
    let before = &cursor.text[..start];
    let indent = before.chars().rev().take_while(|c| *c != '\n').count();
    cursor.at += 3;
    cursor.skip_indent(usize::MAX);
    if cursor.byte() == Some(b'\n') {
        cursor.at += 1;
        cursor.skip_indent(indent);
    }
    let mut text = String::new();
    loop {
        let rest = cursor.rest();
        let Some(stop) = rest.find(['\n', '\r', '\'']) else {
            let open = Span::new(start, start + 3);
            let problem = refused(open, "the text of several lines is not closed");
            return Err(Box::new(problem.label("begins here").help("close it with `'''`")));
        };
        text += &rest[..stop];
        cursor.at += stop;
        match cursor.byte() {
            Some(b'\'') if cursor.rest().starts_with("'''") => {
                cursor.at += 3;
                if text.ends_with('\n') {
                    text.pop();
                }
                return Ok(text);
            }
            Some(b'\'') => {
                text.push('\'');
                cursor.at += 1;
            }
            Some(b'\n') => {
                text.push('\n');
                cursor.at += 1;
                cursor.skip_indent(indent);
            }
            _ => cursor.at += 1,
        }
    }
}

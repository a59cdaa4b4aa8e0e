//! Decoder of bytes into text: byte order marks, UTF-16, and bytes that are not text.

use crate::base::{Diagnostic, Source, Span};

use super::codes::NOT_TEXT;

const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The text of a file. Bytes that are not text become U+FFFD and one diagnostic, so that the rest
/// of the file can still be read; a byte order mark is dropped.
pub fn decode(name: &str, bytes: &[u8]) -> (Source, Vec<Diagnostic>) {
    let bytes = bytes.strip_prefix(UTF8_MARK).unwrap_or(bytes);
    let (text, problem) = match utf16_order(bytes) {
        Some(order) => utf16_text(bytes, order),
        None => utf8_text(bytes),
    };
    (Source { name: name.to_owned(), text }, problem.into_iter().collect())
}

#[derive(Clone, Copy)]
enum ByteOrder {
    Little,
    Big,
}

/// The byte order of UTF-16, detected by its mark, or by a zero in every second byte of an ASCII
/// text.
fn utf16_order(bytes: &[u8]) -> Option<ByteOrder> {
    match bytes {
        [0xFF, 0xFE, ..] => Some(ByteOrder::Little),
        [0xFE, 0xFF, ..] => Some(ByteOrder::Big),
        [a, 0, b, 0, ..] if *a != 0 && *b != 0 => Some(ByteOrder::Little),
        [0, a, 0, b, ..] if *a != 0 && *b != 0 => Some(ByteOrder::Big),
        _ => None,
    }
}

fn utf16_text(bytes: &[u8], order: ByteOrder) -> (String, Option<Diagnostic>) {
    let units = bytes.chunks_exact(2).map(|pair| match order {
        ByteOrder::Little => u16::from_le_bytes([pair[0], pair[1]]),
        ByteOrder::Big => u16::from_be_bytes([pair[0], pair[1]]),
    });
    let text: String = char::decode_utf16(units)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .skip_while(|c| *c == '\u{FEFF}')
        .collect();
    let problem =
        Diagnostic::whole(NOT_TEXT, "the file is not UTF-8 at byte 0; it looks like UTF-16")
            .help("convert it: iconv -f UTF-16 -t UTF-8");
    (text, Some(problem))
}

fn utf8_text(bytes: &[u8]) -> (String, Option<Diagnostic>) {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return (text.to_owned(), None),
        Err(error) => error,
    };
    let at = error.valid_up_to();
    let span = Span::new(at, at + char::REPLACEMENT_CHARACTER.len_utf8());
    let problem = Diagnostic::error(NOT_TEXT, span, format!("the file is not UTF-8 at byte {at}"))
        .label(format!("byte 0x{:02x}", bytes[at]))
        .help("save the file as UTF-8; host names and slots are plain ASCII");
    (String::from_utf8_lossy(bytes).into_owned(), Some(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], text: &str, problem: Option<&str>) {
        let (source, problems) = decode("hosts", bytes);
        assert_eq!(source.text, text);
        assert_eq!(problems.first().map(|found| found.message.as_str()), problem);
        for span in problems.iter().filter_map(|found| found.span) {
            assert_eq!(&source.text[span.start..span.end], "\u{FFFD}");
        }
    }

    #[test]
    fn decode_turns_any_bytes_into_text() {
        const UTF16: Option<&str> = Some("the file is not UTF-8 at byte 0; it looks like UTF-16");
        check(b"a slots=1", "a slots=1", None);
        check(b"\xEF\xBB\xBFa slots=1", "a slots=1", None);
        check(b"\xFF\xFEa\0\n\0", "a\n", UTF16);
        check(b"\xFE\xFF\0a\0\n", "a\n", UTF16);
        check(b"a\0 \0s\0", "a s", UTF16);
        check(b"\0a\0 \0s", "a s", UTF16);
        check(b"ok\xFFx", "ok\u{FFFD}x", Some("the file is not UTF-8 at byte 2"));
        check(b"", "", None);
    }
}

//! Decoder of bytes into text: byte order marks, UTF-16, and bytes that are not text.

use super::diagnostic::Span;

const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Why the bytes of a file are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUtf8 {
    /// The whole file looks like UTF-16.
    Utf16,
    /// One byte is not text.
    Byte {
        /// Its position in the file, without a byte order mark.
        at: usize,
        /// The byte itself.
        byte: u8,
        /// The U+FFFD that the text has in its place.
        span: Span,
    },
}

impl NotUtf8 {
    /// The problem as a message.
    pub fn message(self) -> String {
        match self {
            Self::Utf16 => "the file is not UTF-8 at byte 0; it looks like UTF-16".to_owned(),
            Self::Byte { at, .. } => format!("the file is not UTF-8 at byte {at}"),
        }
    }
}

/// The longest beginning of a text that has at most this number of bytes.
pub fn prefix(text: &str, bytes_max: usize) -> &str {
    let mut ends = (0..=bytes_max.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The text of a file and its problem. Bytes that are not text become U+FFFD, so that the rest of the
/// file can still be read; a byte order mark is dropped.
pub fn decode_text(bytes: &[u8]) -> (String, Option<NotUtf8>) {
    let bytes = bytes.strip_prefix(UTF8_MARK).unwrap_or(bytes);
    match utf16_order(bytes) {
        Some(order) => (utf16_text(bytes, order), Some(NotUtf8::Utf16)),
        None => utf8_text(bytes),
    }
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

fn utf16_text(bytes: &[u8], order: ByteOrder) -> String {
    let units = bytes.chunks_exact(2).map(|pair| match order {
        ByteOrder::Little => u16::from_le_bytes([pair[0], pair[1]]),
        ByteOrder::Big => u16::from_be_bytes([pair[0], pair[1]]),
    });
    char::decode_utf16(units)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .skip_while(|c| *c == '\u{FEFF}')
        .collect()
}

fn utf8_text(bytes: &[u8]) -> (String, Option<NotUtf8>) {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return (text.to_owned(), None),
        Err(error) => error,
    };
    let at = error.valid_up_to();
    let span = Span::new(at, at + char::REPLACEMENT_CHARACTER.len_utf8());
    let problem = NotUtf8::Byte { at, byte: bytes[at], span };
    (String::from_utf8_lossy(bytes).into_owned(), Some(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], text: &str, problem: Option<&str>) {
        let (decoded, found) = decode_text(bytes);
        assert_eq!(decoded, text);
        assert_eq!(found.map(NotUtf8::message).as_deref(), problem);
        if let Some(NotUtf8::Byte { span, .. }) = found {
            assert_eq!(&decoded[span.start..span.end], "\u{FFFD}");
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

//! Escapes the control characters of workers' output: a worker must not move the cursor of the user's
//! terminal, change its title or clipboard, or imitate remuda's lines. UTF-8 text, colours and tabs
//! are kept.

/// Appends `bytes` to `out` with every control that a terminal would obey written as `\x1b`.
pub fn escape_control_into(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.iter().all(|byte| is_plain(*byte)) {
        out.extend_from_slice(bytes);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        push_text(out, chunk.valid());
        for byte in chunk.invalid() {
            push_escaped(out, *byte);
        }
    }
}

/// Escapes a piece of text for a line of remuda in the same way.
pub fn escape_control(text: &str) -> String {
    let mut out = Vec::new();
    escape_control_into(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

/// Number of bytes at the end that may be the first part of a character or of a colour; they must
/// be checked again together with the bytes that follow.
pub(in crate::report) fn incomplete_suffix_len(bytes: &[u8]) -> usize {
    const COLOUR_BYTES_MAX: usize = 32;
    let newest = &bytes[bytes.len().saturating_sub(COLOUR_BYTES_MAX)..];
    if let Some(start) = newest.iter().rposition(|byte| *byte == 0x1b) {
        let sequence = &newest[start..];
        let parameters = sequence.get(2..).unwrap_or_default();
        let may_be_colour = sequence.get(1).is_none_or(|byte| *byte == b'[')
            && parameters.iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
        if may_be_colour {
            return sequence.len();
        }
    }
    // The first byte of a character that needs more bytes than are available.
    let lead = newest.iter().rev().take(3).position(|byte| 0xc0 <= *byte);
    let Some(back) = lead.map(|back| back + 1) else {
        return 0;
    };
    let character = &newest[newest.len() - back..];
    match std::str::from_utf8(character) {
        Err(error) if error.error_len().is_none() => back,
        Ok(_) | Err(_) => 0,
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let colour = colour_sequence_len(rest);
        let (first, after) = rest.split_at(colour.max(character.len_utf8()));
        // C1 controls are two bytes in UTF-8, and some terminals obey them.
        let is_control = character.is_control() && character != '\t';
        if 0 < colour || !is_control {
            out.extend_from_slice(first.as_bytes());
        } else {
            first.bytes().for_each(|byte| push_escaped(out, byte));
        }
        rest = after;
    }
}

/// Length of the colour sequence (`ESC [ digits ; … m`) at the start of `text`, 0 if there is none.
fn colour_sequence_len(text: &str) -> usize {
    let Some(body) = text.strip_prefix("\x1b[") else {
        return 0;
    };
    let digits = body.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if body.as_bytes().get(digits) == Some(&b'm') { "\x1b[".len() + digits + 1 } else { 0 }
}

fn push_escaped(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expect: &str) {
        let mut out = Vec::new();
        escape_control_into(&mut out, bytes);
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn incomplete_suffix_is_measured() {
        #[track_caller]
        fn check(bytes: &[u8], expect: usize) {
            assert_eq!(incomplete_suffix_len(bytes), expect, "{bytes:?}");
        }
        check(b"", 0);
        check(b"plain", 0);
        check("größe".as_bytes(), 0);
        check(b"gr\xc3", 1);
        check(&"漢".as_bytes()[..2], 2);
        check(b"\xff", 0);
        check(b"\x1b", 1);
        check(b"a\x1b[31", 4);
        check(b"a\x1b[31m", 0);
        check(b"\x1b]0;title", 0);
        check(&[&b"\x1b["[..], &[b'1'; 99]].concat(), 0);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]
        #[test]
        fn text_may_be_cut_before_incomplete_suffix(
            text in "(a|ö|漢|😀|\u{1b}\\[1;31m|\u{1b}\\[2J|\u{9b})*", at in 0usize..40
        ) {
            let bytes = text.as_bytes();
            let (first, _) = bytes.split_at(at.min(bytes.len()));
            let (first, rest) = bytes.split_at(first.len() - incomplete_suffix_len(first));
            let (mut whole, mut parts) = (Vec::new(), Vec::new());
            escape_control_into(&mut whole, bytes);
            escape_control_into(&mut parts, first);
            escape_control_into(&mut parts, rest);
            proptest::prop_assert_eq!(parts, whole);
        }
    }

    #[test]
    fn control_sequences_are_escaped() {
        check(b"plain\ttext", "plain\ttext");
        check("größe │ 漢字".as_bytes(), "größe │ 漢字");
        check(b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m");
        check(b"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07");
        check(b"\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07");
        check(b"\xff\xfe", "\\xff\\xfe");
        check("\u{9b}2J".as_bytes(), "\\xc2\\x9b2J");
        check(b"a\rb\x08", "a\\x0db\\x08");
    }
}

//! Makes bytes of a worker harmless for a terminal: no escape sequence, no title, no clipboard, no
//! cursor, nothing that could pass for a line of ours. Text in UTF-8, colours and tabs stay.

/// Appends `bytes` to `out` with everything that a terminal would obey written out as `\x1b`.
pub fn push_neutral(out: &mut Vec<u8>, bytes: &[u8]) {
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

/// The same for a piece of text in a line of ours.
pub fn neutral(text: &str) -> String {
    let mut out = Vec::new();
    push_neutral(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let colour = colour_sequence(rest);
        let (taken, after) = rest.split_at(colour.max(character.len_utf8()));
        // C1 controls are two bytes in UTF-8 and obeyed by some terminals.
        let obeyed = character.is_control() && character != '\t';
        if 0 < colour || !obeyed {
            out.extend_from_slice(taken.as_bytes());
        } else {
            taken.bytes().for_each(|byte| push_escaped(out, byte));
        }
        rest = after;
    }
}

/// Length of the colour sequence (`ESC [ digits ; … m`) at the start of `text`, 0 if there is none.
fn colour_sequence(text: &str) -> usize {
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
        push_neutral(&mut out, bytes);
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
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

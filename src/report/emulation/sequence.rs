//! Reader of escape sequences.

use memchr::memchr3_iter;

/// Most bytes of an escape sequence; a longer one is treated as text.
const SEQUENCE_BYTES_MAX: usize = 32;

pub(super) const ESCAPE: u8 = 0x1b;

/// An escape sequence at the start of a piece.
pub(super) enum Sequence<'a> {
    Known { parameters: &'a [u8], action: u8, length: usize },
    Unfinished,
    Unknown,
}

pub(super) fn read_sequence(bytes: &[u8]) -> Sequence<'_> {
    match bytes.get(1) {
        None => return Sequence::Unfinished,
        Some(b'[') => {}
        Some(_) => return Sequence::Unknown,
    }
    let body = &bytes[2..bytes.len().min(SEQUENCE_BYTES_MAX)];
    let Some(end) = body.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        let may_end = bytes.len() < SEQUENCE_BYTES_MAX;
        return if may_end { Sequence::Unfinished } else { Sequence::Unknown };
    };
    let (parameters, action) = (&body[..end], body[end]);
    let is_known = match (action, parameters) {
        // Sequences that hide or show the cursor, or erase the text below it.
        (b'h' | b'l', b"?25") | (b'J', b"" | b"0") => true,
        (b'A'..=b'G' | b'K' | b'm', _) => parameters.iter().all(|byte| !b"?<=> ".contains(byte)),
        _ => false,
    };
    if is_known {
        Sequence::Known { parameters, action, length: end + 3 }
    } else {
        Sequence::Unknown
    }
}

/// Position of the first control that makes a row redrawable: a carriage return that does not end a
/// line, a backspace, or a movement of the cursor.
pub(in crate::report) fn first_control(bytes: &[u8]) -> Option<usize> {
    memchr3_iter(b'\r', 0x08, ESCAPE, bytes).find(|at| match bytes[*at] {
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        ESCAPE => match read_sequence(&bytes[*at..]) {
            Sequence::Known { action, .. } => action != b'm',
            Sequence::Unfinished => true,
            Sequence::Unknown => false,
        },
        _ => true,
    })
}

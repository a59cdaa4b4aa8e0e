//! The screen that a program leaves.

use memchr::memchr2_iter;

use super::emulator::Emulator;
use super::sequence::ESCAPE;

/// The final screen of a terminal that receives these lines.
pub(in crate::report) fn final_screen(text: &[u8]) -> Vec<u8> {
    let has_controls = memchr2_iter(b'\r', ESCAPE, text).next().is_some();
    if !has_controls {
        return text.to_vec();
    }
    let (mut emulator, mut done, mut rest) = (Emulator::new(b""), Vec::new(), text);
    while !rest.is_empty() {
        rest = &rest[emulator.feed(rest, &mut done)..];
    }
    emulator.finish(&mut done);
    let mut out = Vec::with_capacity(text.len());
    for line in done {
        out.extend_from_slice(&line.text);
        out.push(b'\n');
    }
    out
}

//! Pieces of output → whole lines with a prefix. Pure; memory is bounded whatever comes in.

use std::time::{Duration, Instant};

use memchr::{memchr, memrchr};

use super::neutral::{push_neutral, unfinished};

/// Longest line; what is longer is shown in parts, each but the last ending in [`CONTINUES`].
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Ends a part of a line that goes on.
const CONTINUES: &[u8] = "⏎".as_bytes();
/// A progress bar (`\r`) is shown at most this often where it cannot be redrawn.
const TRANSIENT_PAUSE: Duration = Duration::from_secs(10);

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dress {
    /// For files and pipes: the bytes as they are.
    Bytes,
    /// For a terminal: whatever it would obey is written out.
    Neutral,
}

/// Cuts one stream of one worker into lines.
pub(super) struct LineCutter {
    prefix: Vec<u8>,
    dress: Dress,
    /// The line that has not ended yet.
    partial: Vec<u8>,
    /// When a progress bar was last shown.
    transient_shown: Option<Instant>,
}

impl LineCutter {
    /// Every line begins with `prefix`.
    pub(super) fn new(prefix: Vec<u8>, dress: Dress) -> Self {
        Self { prefix, dress, partial: Vec::new(), transient_shown: None }
    }

    /// Appends to `out` every line that `bytes` completes.
    pub(super) fn push(&mut self, now: Instant, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.partial.is_empty() {
                self.emit_line(line, out);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.emit_line(&whole, out);
                whole.clear();
                self.partial = whole;
            }
        }
        self.keep(now, bytes, out);
    }

    /// Appends what has no end of line and never will.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            let last = std::mem::take(&mut self.partial);
            self.emit_line(&last, out);
        }
    }

    fn keep(&mut self, now: Instant, bytes: &[u8], out: &mut Vec<u8>) {
        self.partial.extend_from_slice(bytes);
        if !bytes.is_empty() && memchr(b'\r', bytes).is_some() {
            self.overwrite(now, out);
        }
        let kept = self.emit_parts(&self.partial, out).len();
        self.partial.drain(..self.partial.len() - kept);
    }

    /// Shows what is too long in parts; gives the last part back.
    fn emit_parts<'a>(&self, mut text: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        while LINE_BYTES_MAX < text.len() {
            let part = LINE_BYTES_MAX - unfinished(&text[..LINE_BYTES_MAX]);
            self.emit_bare(&text[..part], out);
            out.extend_from_slice(CONTINUES);
            out.push(b'\n');
            text = &text[part..];
        }
        text
    }

    /// A carriage return starts the line again: only the newest state of a progress bar is kept,
    /// and one is shown now and then.
    fn overwrite(&mut self, now: Instant, out: &mut Vec<u8>) {
        // A return at the very end may be the first half of `\r\n`.
        let body = self.partial.len().saturating_sub(1);
        let Some(last) = memrchr(b'\r', &self.partial[..body]) else {
            return;
        };
        let rest = self.partial.split_off(last + 1);
        let over = std::mem::replace(&mut self.partial, rest);
        if self.transient_shown.is_none_or(|shown| shown + TRANSIENT_PAUSE <= now) {
            self.transient_shown = Some(now);
            self.emit_line(&over, out);
        }
    }

    /// One line without its end: what was overwritten goes, as it would on a terminal.
    fn emit_line(&self, line: &[u8], out: &mut Vec<u8>) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let visible = match memrchr(b'\r', line) {
            Some(last) => &line[last + 1..],
            None => line,
        };
        let last = self.emit_parts(visible, out);
        self.emit_bare(last, out);
        out.push(b'\n');
    }

    fn emit_bare(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        match self.dress {
            Dress::Bytes => out.extend_from_slice(text),
            Dress::Neutral => push_neutral(out, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    fn cut(pieces: &[&[u8]]) -> String {
        let mut cutter = LineCutter::new(b"w:0 | ".to_vec(), Dress::Bytes);
        let (now, mut out) = (clock::now(), Vec::new());
        for piece in pieces {
            cutter.push(now, piece, &mut out);
        }
        cutter.finish(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn lines_are_whole_whatever_the_pieces() {
        assert_eq!(cut(&[b"a\nb\n"]), "w:0 | a\nw:0 | b\n");
        assert_eq!(cut(&[b"a", b"b\n", b"\n", b"c"]), "w:0 | ab\nw:0 | \nw:0 | c\n");
        assert_eq!(cut(&[b"dos\r\n"]), "w:0 | dos\n");
        assert_eq!(cut(&[b"dos\r", b"\n"]), "w:0 | dos\n");
    }

    #[test]
    fn of_a_progress_bar_the_last_state_stays() {
        assert_eq!(cut(&[b"10%\r20%\r30%\n"]), "w:0 | 30%\n");
        assert_eq!(cut(&[b"10%\r", b"20%\r", b"30%\r", b"done\n"]), "w:0 | 10%\nw:0 | done\n");
    }

    #[test]
    fn a_line_without_end_is_shown_in_bounded_parts() {
        let mut cutter = LineCutter::new(Vec::new(), Dress::Bytes);
        let (now, mut shown) = (clock::now(), 0);
        for _ in 0..100 {
            let mut out = Vec::new();
            cutter.push(now, &[b'x'; 10_000], &mut out);
            shown += memchr::memchr_iter(b'x', &out).count();
            assert!(cutter.partial.len() <= LINE_BYTES_MAX);
        }
        let mut out = Vec::new();
        cutter.finish(&mut out);
        shown += memchr::memchr_iter(b'x', &out).count();
        assert_eq!(shown, 1_000_000, "nothing is lost");
    }

    #[test]
    fn a_long_line_has_the_same_parts_wherever_it_was_cut() {
        let line = ["ö".repeat(100_000).into_bytes(), b"end\n".to_vec()].concat();
        let parts = |size: usize| cut(&line.chunks(size).collect::<Vec<_>>());
        let whole = parts(line.len());
        assert_eq!(whole.matches("⏎\n").count(), 3);
        assert_eq!(whole.matches('ö').count(), 100_000);
        for size in [1000, 4096, 65_535, 65_536, 65_537] {
            assert_eq!(parts(size), whole, "pieces of {size}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]
        #[test]
        fn where_the_pieces_are_cut_does_not_matter(
            text in "[a-c\n]{0,60}", cuts in proptest::collection::vec(0usize..60, 0..6)
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            proptest::prop_assert_eq!(cut(&pieces), cut(&[bytes]));
        }
    }
}

//! Pieces of output → whole lines with a prefix. Pure; memory is bounded whatever comes in.

use std::time::{Duration, Instant};

use memchr::{memchr, memchr_iter, memrchr};

use super::neutral::{push_neutral, unfinished};

/// Longest line; what is longer is shown in parts, each but the last ending in [`CONTINUES`].
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Ends a part of a line that goes on.
const CONTINUES: &[u8] = "⏎".as_bytes();
/// A progress bar (`\r`) is shown at most this often where it cannot be redrawn.
const BAR_PAUSE: Duration = Duration::from_secs(10);

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dress {
    /// For files and pipes: the bytes as they are.
    Bytes,
    /// For a terminal: whatever it would obey is written out.
    Neutral,
}

/// What becomes of a line that is drawn over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bars {
    /// Its newest state is shown as a line now and then.
    NowAndThen,
    /// It is no line until it ends; [`LineCutter::bar`] tells its newest state.
    InStatus,
}

/// Cuts one stream of one worker into lines.
pub(super) struct LineCutter {
    prefix: Vec<u8>,
    dress: Dress,
    bars: Bars,
    /// The line that has not ended yet.
    partial: Vec<u8>,
    /// Whether a carriage return has made it a progress bar.
    is_bar: bool,
    /// When a progress bar was last shown.
    bar_shown: Option<Instant>,
}

impl LineCutter {
    /// Every line begins with `prefix`.
    pub(super) fn new(prefix: Vec<u8>, dress: Dress, bars: Bars) -> Self {
        Self { prefix, dress, bars, partial: Vec::new(), is_bar: false, bar_shown: None }
    }

    /// What every line begins with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The newest state of a progress bar that is for the status line.
    pub(super) fn bar(&self) -> Option<&[u8]> {
        let shown = (self.is_bar && self.bars == Bars::InStatus).then(|| visible(&self.partial));
        shown.filter(|text| !text.is_empty())
    }

    /// Appends to `out` every line that `bytes` completes.
    pub(super) fn push(&mut self, now: Instant, mut bytes: &[u8], out: &mut Vec<u8>) {
        if !self.partial.is_empty()
            && let Some(end) = memchr(b'\n', bytes)
        {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(&bytes[..end]);
            self.emit_line(&whole, out);
            whole.clear();
            self.partial = whole;
            self.is_bar = false;
            bytes = &bytes[end + 1..];
        }
        if let Some(last) = memrchr(b'\n', bytes) {
            let (lines, rest) = bytes.split_at(last + 1);
            self.emit_lines(lines, out);
            self.is_bar = false;
            bytes = rest;
        }
        self.keep(now, bytes, out);
    }

    /// Whole lines, with their ends. Most hold no return: then none has to be looked at for one.
    fn emit_lines(&self, lines: &[u8], out: &mut Vec<u8>) {
        let has_returns = memchr(b'\r', lines).is_some();
        let mut start = 0;
        for end in memchr_iter(b'\n', lines) {
            let line = &lines[start..end];
            if has_returns || LINE_BYTES_MAX < line.len() || self.dress == Dress::Neutral {
                self.emit_line(line, out);
            } else {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(&lines[start..=end]);
            }
            start = end + 1;
        }
    }

    /// Appends what has no end of line and never will.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            let last = std::mem::take(&mut self.partial);
            self.emit_line(&last, out);
        }
        self.is_bar = false;
    }

    fn keep(&mut self, now: Instant, bytes: &[u8], out: &mut Vec<u8>) {
        self.partial.extend_from_slice(bytes);
        if !bytes.is_empty() && memchr(b'\r', bytes).is_some() {
            self.is_bar = true;
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
        let is_due = self.bar_shown.is_none_or(|shown| shown + BAR_PAUSE <= now);
        // Most bars return before they draw, so the first state is nothing.
        if self.bars == Bars::NowAndThen && is_due && !visible(&over).is_empty() {
            self.bar_shown = Some(now);
            self.emit_line(&over, out);
        }
    }

    /// One line without its end: what was overwritten goes, as it would on a terminal.
    fn emit_line(&self, line: &[u8], out: &mut Vec<u8>) {
        let last = self.emit_parts(visible(line), out);
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

/// What a terminal shows of a line in the end.
fn visible(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match memrchr(b'\r', line) {
        Some(last) => &line[last + 1..],
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    fn cut(pieces: &[&[u8]]) -> String {
        let mut cutter = LineCutter::new(b"w:0 | ".to_vec(), Dress::Bytes, Bars::NowAndThen);
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
    fn a_bar_that_returns_before_it_draws_shows_no_empty_line() {
        assert_eq!(cut(&[b"\r10%", b"\r20%", b"\r30%\n"]), "w:0 | 10%\nw:0 | 30%\n");
    }

    #[test]
    fn a_bar_in_the_status_line_becomes_a_line_when_it_ends() {
        #[track_caller]
        fn check(pieces: &[&str], bar: Option<&str>, lines: &str) {
            let mut cutter = LineCutter::new(b"> ".to_vec(), Dress::Neutral, Bars::InStatus);
            let mut out = Vec::new();
            for piece in pieces {
                cutter.push(clock::now(), piece.as_bytes(), &mut out);
            }
            assert_eq!(cutter.bar(), bar.map(str::as_bytes), "{pieces:?}");
            assert_eq!(String::from_utf8_lossy(&out), lines, "{pieces:?}");
        }
        check(&["no bar"], None, "");
        check(&["1%\r"], Some("1%"), "");
        check(&["\r1%", "\r2%"], Some("2%"), "");
        check(&["1%\r", "2%\r"], Some("2%"), "");
        check(&["a\n\r1%", "\r", "2"], Some("2"), "> a\n");
        check(&["\r1%", "\r100%\n"], None, "> 100%\n");
        check(&["\r1%\nplain"], None, "> 1%\n");
        check(&["dos\r", "\n"], None, "> dos\n");
    }

    #[test]
    fn a_line_without_end_is_shown_in_bounded_parts() {
        let mut cutter = LineCutter::new(Vec::new(), Dress::Bytes, Bars::NowAndThen);
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

//! Cuts pieces of output into whole lines with a prefix. Pure; memory is bounded for any input.
//!
//! Most output holds no control except line ends, and is copied unchanged. After the first other
//! control an [`Emulator`] reads the stream, until nothing on its screen can be redrawn any more.

use std::time::{Duration, Instant};

use memchr::{memchr, memchr_iter, memrchr};

use crate::report::emulation::{COLUMNS_MAX, Emulator, FinalLine, first_control};
use crate::report::terminal::Charset;
use crate::report::text::{escape_control_into, incomplete_suffix_len};

/// Most bytes of a line; a longer one is shown in parts, each but the last with a mark at its end.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Least time between two lines of a progress bar where it cannot be redrawn.
const BAR_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a row is final if its program has left it and has written nothing below it.
const HOLD_TIME: Duration = Duration::from_secs(1);
/// The same for a program that returned to such a row.
const HOLD_TIME_MAX: Duration = Duration::from_secs(60);
/// Time after which a line without an end is shown as it is: it may be a prompt.
const PROMPT_AFTER: Duration = Duration::from_secs(1);

/// Treatment of control characters in lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlChars {
    /// For files and pipes: the bytes are unchanged.
    Raw,
    /// For a terminal: control characters are escaped.
    Escaped,
}

/// Treatment of rows that are redrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bars {
    /// At intervals, their newest state is shown as a line.
    AtIntervals,
    /// They are not shown as lines until they are final; [`LineCutter::bar_rows`] returns their
    /// newest states.
    InStatus,
}

/// Cuts one stream of one worker into lines.
pub(super) struct LineCutter {
    prefix: Vec<u8>,
    control_chars: ControlChars,
    bars: Bars,
    /// Mark at the end of a part of a line that the next part continues.
    continuation_mark: &'static str,
    /// The line that has not ended yet; empty while an emulator reads the stream.
    partial: Vec<u8>,
    /// The rows that can still be redrawn.
    emulator: Option<Box<Emulator>>,
    /// When the newest bytes were received.
    received_at: Option<Instant>,
    /// How long a row is held after the program left it.
    hold: Duration,
    /// When a progress bar was last shown.
    bar_shown_at: Option<Instant>,
    /// Whether the line without an end is shown as a prompt.
    is_prompt: bool,
}

impl LineCutter {
    /// Makes a cutter whose lines begin with `prefix`.
    pub(super) fn new(
        prefix: Vec<u8>,
        control_chars: ControlChars,
        bars: Bars,
        charset: Charset,
    ) -> Self {
        Self {
            prefix,
            control_chars,
            bars,
            continuation_mark: charset.continuation(),
            partial: Vec::new(),
            emulator: None,
            received_at: None,
            hold: HOLD_TIME,
            bar_shown_at: None,
            is_prompt: false,
        }
    }

    /// The prefix of every line.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The newest states of progress bars for the status area, from the top.
    pub(super) fn bar_rows(&self) -> Vec<Vec<u8>> {
        match &self.emulator {
            Some(emulator) if self.bars == Bars::InStatus => emulator.bar_rows().collect(),
            Some(_) | None => Vec::new(),
        }
    }

    /// A line that has had no end for a while and may be a prompt.
    pub(super) fn prompt(&self) -> Option<Vec<u8>> {
        self.partial_line().filter(|_| self.is_prompt)
    }

    /// Ends the prompt: the terminal has echoed the end of what was typed.
    pub(super) fn end_prompt(&mut self) {
        if std::mem::take(&mut self.is_prompt) {
            self.partial.clear();
            self.emulator.iter_mut().for_each(|emulator| emulator.discard_partial_line());
        }
    }

    fn partial_line(&self) -> Option<Vec<u8>> {
        match &self.emulator {
            Some(emulator) => emulator.partial_line(),
            None => (!self.partial.is_empty()).then(|| self.partial.clone()),
        }
    }

    /// Appends to `out` every line that `bytes` complete.
    pub(super) fn push(&mut self, now: Instant, mut bytes: &[u8], out: &mut Vec<u8>) {
        self.received_at = Some(now);
        while !bytes.is_empty() {
            let read = match &mut self.emulator {
                Some(emulator) => {
                    let mut done = Vec::new();
                    let read = emulator.feed(bytes, &mut done);
                    self.after_feed(&done, out);
                    read
                }
                None => match first_control(bytes) {
                    None => {
                        self.push_plain(bytes, out);
                        bytes.len()
                    }
                    Some(at) => {
                        self.push_plain(&bytes[..at], out);
                        self.start_emulator(out);
                        at
                    }
                },
            };
            bytes = &bytes[read..];
        }
        self.show_bar_state(now, out);
    }

    fn start_emulator(&mut self, out: &mut Vec<u8>) {
        if COLUMNS_MAX <= self.partial.len() {
            let text = std::mem::take(&mut self.partial);
            self.emit_part(&text, out);
        }
        self.emulator = Some(Box::new(Emulator::new(&self.partial)));
        self.partial.clear();
    }

    fn after_feed(&mut self, done: &[FinalLine], out: &mut Vec<u8>) {
        self.emit_final(done, out);
        let Some(emulator) = &mut self.emulator else { return };
        if emulator.take_hit_top() {
            self.hold = (self.hold * 4).min(HOLD_TIME_MAX);
        }
        if emulator.is_idle() {
            self.partial = emulator.carried_style();
            self.emulator = None;
        }
    }

    fn emit_final(&mut self, done: &[FinalLine], out: &mut Vec<u8>) {
        for line in done {
            self.is_prompt = false;
            if line.continues {
                self.emit_part(&line.text, out);
            } else {
                self.emit_line(&line.text, out);
            }
        }
    }

    /// Handles bytes without any control except line ends.
    fn push_plain(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        if !self.partial.is_empty()
            && let Some(end) = memchr(b'\n', bytes)
        {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(&bytes[..end]);
            self.emit_line(&whole, out);
            whole.clear();
            self.partial = whole;
            self.is_prompt = false;
            bytes = &bytes[end + 1..];
        }
        if let Some(last) = memrchr(b'\n', bytes) {
            let (lines, rest) = bytes.split_at(last + 1);
            self.emit_lines(lines, out);
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
        let kept = self.emit_parts(&self.partial, out).len();
        self.partial.drain(..self.partial.len() - kept);
    }

    /// Emits whole lines with their ends. Most contain no carriage return, so the lines need not be
    /// searched for one.
    fn emit_lines(&self, lines: &[u8], out: &mut Vec<u8>) {
        let has_returns = memchr(b'\r', lines).is_some();
        let mut start = 0;
        for end in memchr_iter(b'\n', lines) {
            let line = &lines[start..end];
            if has_returns
                || LINE_BYTES_MAX < line.len()
                || self.control_chars == ControlChars::Escaped
            {
                self.emit_line(line, out);
            } else {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(&lines[start..=end]);
            }
            start = end + 1;
        }
    }

    /// When [`Self::on_timer`] should be called if no bytes are pushed before.
    pub(super) fn due(&self) -> Option<Instant> {
        let received_at = self.received_at?;
        let emulator = self.emulator.as_ref();
        let finalizes =
            emulator.filter(|emulator| emulator.holds_rows()).map(|_| received_at + self.hold);
        let changed = emulator
            .filter(|emulator| self.bars == Bars::AtIntervals && emulator.has_changed_bar());
        let shows = changed.and(self.bar_shown_at).map(|shown| shown + BAR_INTERVAL);
        let has_prompt = match emulator {
            _ if self.is_prompt || self.bars == Bars::AtIntervals => false,
            Some(emulator) => emulator.partial_line().is_some(),
            None => !self.partial.is_empty(),
        };
        let prompts = has_prompt.then(|| received_at + PROMPT_AFTER);
        [finalizes, shows, prompts].into_iter().flatten().min()
    }

    /// Runs the timed work.
    pub(super) fn on_timer(&mut self, now: Instant, out: &mut Vec<u8>) {
        let Some(received_at) = self.received_at else { return };
        if let Some(emulator) = &mut self.emulator
            && received_at + self.hold <= now
        {
            let mut done = Vec::new();
            emulator.finalize_idle_rows(&mut done);
            self.after_feed(&done, out);
        }
        self.show_bar_state(now, out);
        let is_late = self.bars == Bars::InStatus && received_at + PROMPT_AFTER <= now;
        self.is_prompt |= is_late && self.partial_line().is_some();
    }

    /// Shows the newest state of a progress bar as a line, unless one was shown within
    /// [`BAR_INTERVAL`].
    fn show_bar_state(&mut self, now: Instant, out: &mut Vec<u8>) {
        let is_due = self.bar_shown_at.is_none_or(|shown| shown + BAR_INTERVAL <= now);
        if self.bars != Bars::AtIntervals || !is_due {
            return;
        }
        if let Some(state) = self.emulator.as_mut().and_then(|emulator| emulator.take_changed_bar())
        {
            self.bar_shown_at = Some(now);
            self.emit_line(&state, out);
        }
    }

    /// Appends a last line that has no end, when the stream has ended.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(emulator) = self.emulator.take() {
            let mut done = Vec::new();
            emulator.finish(&mut done);
            self.emit_final(&done, out);
        }
        if !self.partial.is_empty() {
            let last = std::mem::take(&mut self.partial);
            self.emit_line(&last, out);
        }
        self.is_prompt = false;
    }

    /// Emits a line that is too long in parts; returns the last part.
    fn emit_parts<'a>(&self, mut text: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        while LINE_BYTES_MAX < text.len() {
            let part = LINE_BYTES_MAX - incomplete_suffix_len(&text[..LINE_BYTES_MAX]);
            self.emit_part(&text[..part], out);
            text = &text[part..];
        }
        text
    }

    fn emit_part(&self, text: &[u8], out: &mut Vec<u8>) {
        self.emit_text(text, out);
        out.extend_from_slice(self.continuation_mark.as_bytes());
        out.push(b'\n');
    }

    /// Emits one line without its end.
    fn emit_line(&self, line: &[u8], out: &mut Vec<u8>) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let last = self.emit_parts(line, out);
        self.emit_text(last, out);
        out.push(b'\n');
    }

    fn emit_text(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        match self.control_chars {
            ControlChars::Raw => out.extend_from_slice(text),
            ControlChars::Escaped => escape_control_into(out, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    fn cut(pieces: &[&[u8]]) -> String {
        let mut cutter = LineCutter::new(
            b"w:0 | ".to_vec(),
            ControlChars::Raw,
            Bars::AtIntervals,
            Charset::Utf8,
        );
        let (now, mut out) = (clock::now(), Vec::new());
        for piece in pieces {
            cutter.push(now, piece, &mut out);
        }
        cutter.finish(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn lines_are_whole_for_any_pieces() {
        assert_eq!(cut(&[b"a\nb\n"]), "w:0 | a\nw:0 | b\n");
        assert_eq!(cut(&[b"a", b"b\n", b"\n", b"c"]), "w:0 | ab\nw:0 | \nw:0 | c\n");
        assert_eq!(cut(&[b"dos\r\n"]), "w:0 | dos\n");
        assert_eq!(cut(&[b"dos\r", b"\n"]), "w:0 | dos\n");
    }

    #[test]
    fn progress_bar_leaves_its_last_state() {
        assert_eq!(cut(&[b"10%\r20%\r30%\n"]), "w:0 | 30%\n");
        assert_eq!(cut(&[b"10%\r", b"20%\r", b"30%\r", b"done\n"]), "w:0 | 10%\nw:0 | done\n");
    }

    #[test]
    fn bar_with_leading_return_shows_no_empty_line() {
        assert_eq!(cut(&[b"\r10%", b"\r20%", b"\r30%\n"]), "w:0 | 10%\nw:0 | 30%\n");
    }

    /// A cutter with its output and a simulated clock.
    struct TestCutter {
        cutter: LineCutter,
        now: Instant,
        out: Vec<u8>,
    }

    impl TestCutter {
        fn new(control_chars: ControlChars, bars: Bars) -> Self {
            let cutter = LineCutter::new(b"> ".to_vec(), control_chars, bars, Charset::Utf8);
            Self { cutter, now: clock::now(), out: Vec::new() }
        }

        fn push(&mut self, text: &str) -> &mut Self {
            self.cutter.push(self.now, text.as_bytes(), &mut self.out);
            self
        }

        /// Advances the clock, and runs the timed work that becomes due.
        fn advance(&mut self, time: Duration) -> &mut Self {
            let end = self.now + time;
            while let Some(due) = self.cutter.due().filter(|due| *due <= end) {
                self.now = self.now.max(due);
                self.cutter.on_timer(self.now, &mut self.out);
                assert!(self.cutter.due().is_none_or(|next| due < next), "due again at once");
            }
            self.now = end;
            self
        }

        #[track_caller]
        fn check(&mut self, lines: &str, bars: &[&str]) {
            assert_eq!(String::from_utf8_lossy(&std::mem::take(&mut self.out)), lines);
            let rows = self.cutter.bar_rows();
            assert_eq!(rows, bars.iter().map(|bar| bar.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn bar_in_the_status_area_becomes_a_line_when_it_ends() {
        #[track_caller]
        fn check(pieces: &[&str], bars: &[&str], lines: &str, later: &str) {
            let mut test = TestCutter::new(ControlChars::Escaped, Bars::InStatus);
            for piece in pieces {
                test.push(piece);
            }
            test.check(lines, bars);
            test.advance(HOLD_TIME).check(later, if later.is_empty() { bars } else { &[] });
        }
        check(&["no bar"], &[], "", "");
        check(&["1%\r"], &["1%"], "", "");
        check(&["\r1%", "\r2%"], &["2%"], "", "");
        check(&["1%\r", "2%\r"], &["2%"], "", "");
        check(&["a\n\r1%", "\r", "2"], &["2%"], "> a\n", "");
        check(&["\r1%", "\r100%\n"], &["100%"], "", "> 100%\n");
        check(&["\r1%\nplain"], &["1%"], "", "> 1%\n");
        check(&["dos\r", "\n"], &[], "> dos\n", "");
    }

    #[test]
    fn bar_in_a_pipe_is_shown_at_intervals() {
        let mut test = TestCutter::new(ControlChars::Raw, Bars::AtIntervals);
        let ms = Duration::from_millis;
        // A bar that runs for 35 s with ten states a second; then another one.
        for state in 0..350 {
            test.push(&format!("\r{state:3}")).advance(ms(100));
        }
        test.check(">   0\n>  99\n> 199\n> 299\n", &[]);
        test.push("\r350\n").advance(ms(2000)).check("> 350\n", &[]);
        test.push("\rsecond 0");
        // The bar began before it may be shown, and writes nothing more for a while.
        test.advance(ms(10_000)).check("> second 0\n", &[]);
        test.push("\rsecond 1").push("\rsecond 2\n").advance(ms(60_000)).check("> second 2\n", &[]);
    }

    #[test]
    fn last_state_in_a_pipe_is_shown_once() {
        let mut test = TestCutter::new(ControlChars::Raw, Bars::AtIntervals);
        test.push("\r100%").push("\n").advance(HOLD_TIME).check("> 100%\n", &[]);
    }

    #[test]
    fn nested_bars_in_a_pipe_do_not_flood() {
        let mut test = TestCutter::new(ControlChars::Raw, Bars::AtIntervals);
        for step in 0..400 {
            test.push(&format!("\repoch {}", step / 90)).advance(Duration::from_millis(50));
            test.push(&format!("\n\rbatch {step}\x1b[A")).advance(Duration::from_millis(50));
        }
        let lines = String::from_utf8(std::mem::take(&mut test.out)).expect("text");
        assert_eq!(lines.lines().count(), 5, "{lines}");
        assert!(lines.starts_with("> epoch 0\n> epoch 1\n"), "{lines}");
    }

    #[test]
    fn nested_bars_stay_in_the_status_area() {
        let bytes = include_bytes!("../../../tests/vectors/bars/trainer.bytes");
        let mut test = TestCutter::new(ControlChars::Escaped, Bars::InStatus);
        let text = std::str::from_utf8(bytes).expect("text");
        for piece in text.split_inclusive("\x1b[A") {
            test.push(piece).advance(Duration::from_millis(10));
            assert!(test.cutter.bar_rows().len() <= 3);
        }
        test.advance(HOLD_TIME);
        let lines = String::from_utf8(test.out).expect("text");
        let notes = lines.lines().filter(|line| line.contains("loss")).count();
        assert_eq!((notes, lines.lines().count()), (6, 8), "{lines}");
        assert!(!lines.contains("x1b"), "{lines}");
    }

    #[test]
    fn rich_that_pauses_is_held_longer() {
        let mut test = TestCutter::new(ControlChars::Escaped, Bars::InStatus);
        test.push("a 0%\nb 0%");
        for _ in 0..30 {
            test.push("\r\x1b[2K\x1b[1A\x1b[2Ka 1%\nb 1%").advance(Duration::from_secs(3));
        }
        let lines = String::from_utf8(test.out).expect("text");
        assert!(lines.lines().count() <= 3, "{lines}");
    }

    #[test]
    fn line_without_end_becomes_a_prompt() {
        let mut test = TestCutter::new(ControlChars::Escaped, Bars::InStatus);
        test.push("a\n(Pdb) ").check("> a\n", &[]);
        assert_eq!(test.cutter.prompt(), None, "it may still end");
        test.advance(PROMPT_AFTER).check("", &[]);
        assert_eq!(test.cutter.prompt().as_deref(), Some(&b"(Pdb) "[..]));
        test.push("more").check("", &[]);
        assert_eq!(test.cutter.prompt().as_deref(), Some(&b"(Pdb) more"[..]));
        test.push("\nb\n").check("> (Pdb) more\n> b\n", &[]);
        assert_eq!(test.cutter.prompt(), None);
        test.push("(Pdb) ").advance(PROMPT_AFTER);
        test.cutter.end_prompt();
        test.push("answer\n").check("> answer\n", &[]);
        // A bar is not a prompt, and in a pipe there are no prompts.
        test.push("\r1%").advance(PROMPT_AFTER);
        assert_eq!(test.cutter.prompt(), None);
        let mut pipe = TestCutter::new(ControlChars::Raw, Bars::AtIntervals);
        pipe.push("(Pdb) ").advance(PROMPT_AFTER).check("", &[]);
        assert_eq!(pipe.cutter.prompt(), None);
    }

    #[test]
    fn endless_line_is_shown_in_bounded_parts() {
        let mut cutter =
            LineCutter::new(Vec::new(), ControlChars::Raw, Bars::AtIntervals, Charset::Utf8);
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
    fn long_line_has_the_same_parts_for_any_pieces() {
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
        fn lines_do_not_depend_on_the_pieces(
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

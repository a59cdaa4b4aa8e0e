//! A terminal emulator for progress bars: it holds the rows of one stream that can still be
//! redrawn, and returns each row as a line once it is final. Pure; memory is bounded.
//!
//! A pipe has no height, so it is unknown when a program can no longer reach a row. tqdm keeps its
//! cursor in the first row of its bars, moves down to the others and returns; rich moves up to the
//! first row, and ends in the last. A row is final when the program
//!
//! * moved the cursor up to a row below it and writes there, or moves down again,
//! * draws a row below it twice without leaving it,
//! * ended it with a line feed, and the row below it too, and has never moved the cursor up,
//! * ended it with a line feed, wrote it without any control, and has never moved the cursor up,
//! * moved on below it and then wrote nothing for a while ([`Emulator::finalize_idle_rows`]).

use anstyle::Style;

use super::row::{EmulatedRow, FinalLine};
use super::sequence::{ESCAPE, Sequence, read_sequence};
use super::text_row::{apply_sgr, push_style};

/// Most rows that are held; if a program draws more, the topmost rows become lines.
pub(in crate::report) const ROWS_MAX: usize = 64;
/// Most columns of a row; a longer row becomes a line of its own.
pub(in crate::report) const COLUMNS_MAX: usize = 4096;
/// Number of consecutive plain lines after which the program is taken to redraw nothing any more.
const PLAIN_ROWS_MAX: usize = 64;

/// A terminal emulator for one stream.
#[derive(Default)]
pub(in crate::report) struct Emulator {
    /// The rows that can still be redrawn, from the top; there is always at least one.
    rows: Vec<EmulatedRow>,
    row: usize,
    column: usize,
    style: Style,
    row_visit: RowVisit,
    /// Bytes at the end of the newest piece that are incomplete without those that follow.
    incomplete_bytes: Vec<u8>,
    /// Whether the program returns to rows above its cursor.
    moves_up: bool,
    /// Lines since the cursor last moved up.
    plain_rows: usize,
    /// Whether the program moved the cursor above the topmost row.
    has_hit_top: bool,
}

/// Events since the cursor entered its row.
#[derive(Default)]
struct RowVisit {
    came_from_below: bool,
    /// Whether text was written.
    has_written: bool,
    /// Whether a carriage return was the newest control.
    has_returned: bool,
    /// Number of times that text was written after a carriage return.
    draw_count: u32,
}

impl Emulator {
    /// Makes an emulator that begins with the part of a line that was written before.
    pub(in crate::report) fn new(line: &[u8]) -> Self {
        let mut emulator = Self { rows: vec![EmulatedRow::default()], ..Self::default() };
        // Without a line end no row can become final.
        emulator.feed(line, &mut Vec::new());
        emulator
    }

    /// Reads bytes and adds the lines that became final to `done`. Returns how many bytes were
    /// read: it stops after a line feed if nothing can be redrawn any more.
    pub(in crate::report) fn feed(&mut self, bytes: &[u8], done: &mut Vec<FinalLine>) -> usize {
        if self.incomplete_bytes.is_empty() {
            return self.read(bytes, done);
        }
        let before = self.incomplete_bytes.len();
        let joined = [&std::mem::take(&mut self.incomplete_bytes), bytes].concat();
        self.read(&joined, done).saturating_sub(before)
    }

    fn read(&mut self, bytes: &[u8], done: &mut Vec<FinalLine>) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let read = match rest[0] {
                b'\n' => {
                    self.line_feed(done);
                    if self.is_idle() {
                        return at + 1;
                    }
                    1
                }
                ESCAPE => match read_sequence(rest) {
                    Sequence::Known { parameters, action, length } => {
                        self.apply_sequence(action, parameters);
                        length
                    }
                    Sequence::Unknown => self.write_byte(ESCAPE, done),
                    Sequence::Unfinished => break,
                },
                b'\r' => {
                    self.carriage_return();
                    1
                }
                0x08 => {
                    self.column = self.column.saturating_sub(1);
                    self.rows[self.row].is_redrawn = true;
                    1
                }
                b'\t' => {
                    self.write_tab(done);
                    1
                }
                byte if byte < b' ' || byte == 0x7f => self.write_byte(byte, done),
                _ => match self.write_first_char(rest, done) {
                    0 => break,
                    read => read,
                },
            };
            at += read;
        }
        self.incomplete_bytes = bytes[at..].to_vec();
        bytes.len()
    }

    /// Writes the first character; returns its bytes, or 0 if it is not complete.
    fn write_first_char(&mut self, bytes: &[u8], done: &mut Vec<FinalLine>) -> usize {
        let length = match bytes[0] {
            ..0x80 => 1,
            0xc2..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0..0xf5 => 4,
            _ => return self.write_byte(bytes[0], done),
        };
        let head = &bytes[..length.min(bytes.len())];
        match std::str::from_utf8(head) {
            Ok(text) => {
                let character = text.chars().next().expect("a string with at least one byte");
                self.write_char(character, done);
                length
            }
            Err(error) if error.error_len().is_none() => 0,
            Err(_) => self.write_byte(bytes[0], done),
        }
    }

    fn write_char(&mut self, character: char, done: &mut Vec<FinalLine>) {
        self.before_write(done);
        self.column = self.rows[self.row].text.put(self.column, character, self.style);
        self.limit_width(done);
    }

    fn write_byte(&mut self, byte: u8, done: &mut Vec<FinalLine>) -> usize {
        self.before_write(done);
        self.column = self.rows[self.row].text.put_byte(self.column, byte, self.style);
        self.limit_width(done);
        1
    }

    /// A tab stays a tab if no text follows it.
    fn write_tab(&mut self, done: &mut Vec<FinalLine>) {
        const STOP: usize = 8;
        let to = (self.column / STOP + 1) * STOP;
        if self.column < self.rows[self.row].text.width() || self.rows[self.row].is_redrawn {
            self.column = to;
            return;
        }
        self.write_byte(b'\t', done);
    }

    fn before_write(&mut self, done: &mut Vec<FinalLine>) {
        let begins = self.row_visit.has_returned || !self.row_visit.has_written;
        let row = &mut self.rows[self.row];
        row.is_ended = false;
        if std::mem::take(&mut self.row_visit.has_returned) {
            self.row_visit.draw_count += 1;
            row.is_redrawn = true;
        }
        let came_up = self.row_visit.came_from_below && !self.row_visit.has_written;
        self.row_visit.has_written = true;
        if begins && (came_up || 2 <= self.row_visit.draw_count) {
            self.finalize_above(self.row, done);
        }
    }

    /// Turns a row that is too wide into a line that the next one continues.
    fn limit_width(&mut self, done: &mut Vec<FinalLine>) {
        if self.column < COLUMNS_MAX {
            return;
        }
        self.finalize_above(self.row, done);
        let row = std::mem::take(&mut self.rows[0]);
        done.push(FinalLine { text: row.text.to_bytes(), continues: true });
        self.column = 0;
    }

    fn carriage_return(&mut self) {
        self.column = 0;
        self.row_visit.has_returned = true;
    }

    fn line_feed(&mut self, done: &mut Vec<FinalLine>) {
        let is_last = self.row + 1 == self.rows.len();
        let row = &mut self.rows[self.row];
        row.is_ended = self.row_visit.has_written || !row.is_redrawn;
        let (is_plain, wrote) = (is_last && !row.is_redrawn, self.row_visit.has_written);
        let is_final = is_plain && !self.moves_up;
        let is_top = self.row_visit.came_from_below && !wrote;
        if is_last {
            self.rows.push(EmulatedRow::default());
        }
        if is_top {
            self.finalize_above(self.row, done);
        }
        self.enter_row(self.row + 1, false);
        self.column = 0;
        if is_final {
            self.finalize_above(self.row, done);
            return;
        }
        self.plain_rows += usize::from(is_last && wrote);
        if PLAIN_ROWS_MAX < self.plain_rows {
            self.moves_up = false;
        }
        if wrote && !self.moves_up {
            // The row that has just ended may be the first of several bars; the rows above it are
            // not.
            self.finalize_above(self.row - 1, done);
        }
        let surplus = self.rows.len().saturating_sub(ROWS_MAX).min(self.row);
        self.finalize_above(surplus, done);
    }

    fn enter_row(&mut self, row: usize, came_up: bool) {
        self.row = row;
        self.row_visit = RowVisit { came_from_below: came_up, ..RowVisit::default() };
    }

    fn apply_sequence(&mut self, action: u8, parameters: &[u8]) {
        let number = std::str::from_utf8(parameters).ok().and_then(|text| text.parse().ok());
        let count = number.unwrap_or(1_usize).max(1);
        match action {
            b'm' => self.style = apply_sgr(self.style, parameters),
            b'A' => self.move_up(count),
            b'F' => {
                self.move_up(count);
                self.carriage_return();
            }
            b'B' => self.move_down(count),
            b'E' => {
                self.move_down(count);
                self.carriage_return();
            }
            b'C' => self.move_to(self.column.saturating_add(count)),
            b'D' => self.move_to(self.column.saturating_sub(count)),
            b'G' if count == 1 => self.carriage_return(),
            b'G' => self.move_to(count - 1),
            b'J' => {
                self.erase(0);
                self.rows.truncate(self.row + 1);
            }
            b'K' => self.erase(number.unwrap_or(0)),
            _ => {}
        }
    }

    fn move_to(&mut self, column: usize) {
        self.column = column.min(COLUMNS_MAX - 1);
        self.rows[self.row].is_redrawn = true;
    }

    fn move_up(&mut self, count: usize) {
        self.has_hit_top |= self.row < count;
        (self.moves_up, self.plain_rows) = (true, 0);
        self.enter_row(self.row.saturating_sub(count), true);
        let row = &mut self.rows[self.row];
        (row.is_redrawn, row.is_ended) = (true, false);
    }

    fn move_down(&mut self, count: usize) {
        let last = self.rows.len() - 1;
        self.enter_row(self.row.saturating_add(count).min(last), false);
        self.rows[self.row].is_redrawn = true;
    }

    fn erase(&mut self, part: usize) {
        let row = &mut self.rows[self.row];
        match part {
            // Compilers and grep erase the rest of a line after they have written it; that is not
            // redrawing.
            0 if row.text.width() <= self.column => return,
            0 => row.text.truncate(self.column),
            1 => row.text.blank_before(self.column + 1),
            _ => row.text.truncate(0),
        }
        row.is_redrawn = true;
    }

    /// Makes the rows above this one final.
    fn finalize_above(&mut self, row: usize, done: &mut Vec<FinalLine>) {
        done.extend(self.rows.drain(..row).filter_map(EmulatedRow::into_line));
        self.row -= row;
    }

    /// Makes the rows above the cursor final, because the program has written nothing for a while.
    pub(in crate::report) fn finalize_idle_rows(&mut self, done: &mut Vec<FinalLine>) {
        self.finalize_above(self.row, done);
        let is_left =
            |row: &EmulatedRow| row.text.is_blank() && (row.is_redrawn || row.text.is_empty());
        if self.rows.iter().all(is_left) {
            self.rows = vec![EmulatedRow::default()];
            (self.column, self.row_visit, self.moves_up) = (0, RowVisit::default(), false);
        }
    }

    /// Makes all rows final, also one without an end of line.
    pub(in crate::report) fn finish(mut self, done: &mut Vec<FinalLine>) {
        for byte in std::mem::take(&mut self.incomplete_bytes) {
            self.write_byte(byte, done);
        }
        done.extend(
            self.rows
                .into_iter()
                .filter(|row| !row.text.is_empty())
                .filter_map(EmulatedRow::into_line),
        );
    }

    /// Whether nothing could be redrawn, and nothing has been written.
    pub(in crate::report) fn is_idle(&self) -> bool {
        let [row] = &self.rows[..] else { return false };
        let is_fresh = row.text.is_empty() && !row.is_redrawn && !self.row_visit.has_returned;
        is_fresh && self.incomplete_bytes.is_empty() && !self.moves_up
    }

    /// Escape sequences to print before the next byte if the stream is not emulated any more.
    pub(in crate::report) fn carried_style(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_style(&mut out, Style::new(), self.style);
        out
    }

    /// Whether there are rows above the cursor that are not final yet.
    pub(in crate::report) fn holds_rows(&self) -> bool {
        0 < self.row
    }

    /// Whether the program moved to a row that was final, since the last call.
    pub(in crate::report) fn take_hit_top(&mut self) -> bool {
        std::mem::take(&mut self.has_hit_top)
    }

    /// The visible rows that may still be redrawn, from the top. A line that is being written
    /// without any control is excluded.
    pub(in crate::report) fn bar_rows(&self) -> impl Iterator<Item = Vec<u8>> {
        self.bars().map(|(_, row)| row.trimmed())
    }

    fn bars(&self) -> impl Iterator<Item = (usize, &EmulatedRow)> {
        let is_bar = |at: usize, row: &EmulatedRow| {
            let is_partial_line = at == self.row && !row.is_redrawn && !self.row_visit.has_returned;
            !is_partial_line && !row.text.is_blank()
        };
        self.rows.iter().enumerate().filter(move |(at, row)| is_bar(*at, row))
    }

    /// Whether a bar has changed since it was last reported.
    pub(in crate::report) fn has_changed_bar(&self) -> bool {
        self.bars().any(|(_, row)| row.has_changed())
    }

    /// The topmost bar that has changed since it was last reported.
    pub(in crate::report) fn take_changed_bar(&mut self) -> Option<Vec<u8>> {
        let (at, row) = self.bars().find(|(_, row)| row.has_changed())?;
        let text = row.trimmed();
        self.rows[at].reported = Some(text.clone());
        Some(text)
    }

    /// The text of a line that has no end yet and that no control has touched.
    pub(in crate::report) fn partial_line(&self) -> Option<Vec<u8>> {
        let row = &self.rows[self.row];
        let is_partial_line =
            !row.is_redrawn && !self.row_visit.has_returned && self.incomplete_bytes.is_empty();
        (is_partial_line && self.rows.len() == 1 && !row.text.is_empty())
            .then(|| row.text.to_bytes())
    }

    /// Discards a line that has no end yet.
    pub(in crate::report) fn discard_partial_line(&mut self) {
        if self.partial_line().is_some() {
            self.rows[self.row] = EmulatedRow::default();
            self.column = 0;
            self.enter_row(self.row, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that become final while the pieces are read, and the bars after that.
    fn read(pieces: &[&str]) -> (Vec<String>, Vec<String>) {
        let (emulator, done) = fed(pieces.iter().map(|piece| piece.as_bytes()));
        (texts(done), strings(emulator.bar_rows()))
    }

    fn fed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Emulator, Vec<FinalLine>) {
        let (mut emulator, mut done) = (Emulator::new(b""), Vec::new());
        for mut piece in pieces {
            while !piece.is_empty() {
                piece = &piece[emulator.feed(piece, &mut done)..];
            }
        }
        (emulator, done)
    }

    fn texts(done: Vec<FinalLine>) -> Vec<String> {
        strings(done.into_iter().map(|line| line.text))
    }

    fn strings(texts: impl IntoIterator<Item = Vec<u8>>) -> Vec<String> {
        let string = |text: Vec<u8>| String::from_utf8_lossy(&text).trim_end().to_owned();
        texts.into_iter().map(string).collect()
    }

    /// All lines after the end of the stream.
    fn read_all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (emulator, mut done) = fed(pieces);
        emulator.finish(&mut done);
        texts(done)
    }

    /// The screen of a terminal with many rows that receives the same bytes, without empty rows.
    fn on_terminal(bytes: &[u8]) -> Vec<String> {
        let size = |number| std::num::NonZero::new(number).expect("not zero");
        let mut terminal = vt100::Parser::new(size(100), size(200), 0);
        // The terminal's driver makes this replacement for programs that write to it.
        let text = String::from_utf8_lossy(bytes).replace('\n', "\r\n");
        terminal.process(text.as_bytes());
        let rows = terminal.screen().rows(0, 200).map(|row| row.trim_end().to_owned());
        rows.filter(|row| !row.is_empty()).collect()
    }

    #[test]
    fn rows_become_final() {
        #[track_caller]
        fn check(pieces: &[&str], lines: &[&str], bars: &[&str]) {
            let (shown, left) = read(pieces);
            assert_eq!((&shown[..], &left[..]), (&strs(lines)[..], &strs(bars)[..]), "{pieces:?}");
        }
        fn strs(texts: &[&str]) -> Vec<String> {
            texts.iter().map(|text| (*text).to_owned()).collect()
        }
        check(&["plain\n", "begun"], &["plain"], &[]);
        check(&["1%\r"], &[], &["1%"]);
        check(&["\r1%", "\r2%"], &[], &["2%"]);
        check(&["\r100%\n"], &[], &["100%"]);
        check(&["\r100%\n", "\rnext\rnext 1%"], &["100%"], &["next 1%"]);
        check(&["\r100%\n", "plain\n"], &["100%", "plain"], &[]);
        check(&["longer\rlong"], &[], &["longer"]);
        check(&["dos\r\n", "dos\r", "\n"], &["dos", "dos"], &[]);
        check(&["\x1b[31mred\x1b[K\n"], &["\x1b[31mred\x1b[0m"], &[]);
        check(&["|\x08/\x08-"], &[], &["-"]);
        // Lines that all begin with a carriage return.
        check(&["\ra\n\rb\n\rc\n"], &["a", "b"], &["c"]);
        // tqdm: two bars, then `tqdm.write`.
        let two = "\r outer 0%\n\r inner 0%\x1b[A";
        check(&[two], &[], &[" outer 0%", " inner 0%"]);
        check(&[two, "\r outer 1%\n\r inner 1%\x1b[A"], &[], &[" outer 1%", " inner 1%"]);
        let note = "\r         \r\n\r         \r\x1b[Anote\n\r outer\n\r inner\x1b[A";
        check(&[two, note], &[], &["note", " outer", " inner"]);
        let next = "\n\r inner 2\x1b[A";
        check(&[two, note, next], &["note"], &[" outer", " inner 2"]);
        // The note was written to the other stream; the bars are blanked and redrawn.
        let redrawn = "\r         \r\n\r         \r\x1b[A\r outer\n\r inner\x1b[A";
        check(&[two, redrawn], &[], &[" outer", " inner"]);
        check(&["\r outer\r       \r\r outer", "\n\r inner\x1b[A"], &[], &[" outer", " inner"]);
        // Three bars.
        check(&[two, "\n\n\r micro\x1b[A\x1b[A"], &[], &[" outer 0%", " inner 0%", " micro"]);
        // rich, after its first frame.
        let frame = "\r\x1b[2K\x1b[1A\x1b[2Ka 1%\nb 1%";
        check(&["a 0%\nb 0%", frame, frame], &["a 0%"], &["a 1%", "b 1%"]);
        check(
            &["a\nb", frame, "\r\x1b[2K\x1b[1A\x1b[2Knote\na\nb", frame],
            &["a", "note"],
            &["a 1%", "b 1%"],
        );
        check(&["a\x1b[2Jb\n"], &["a\x1b[2Jb"], &[]);
        check(&["\r1\x1b[?25l\r2\x1b[?25h"], &[], &["2"]);
        check(&["\ra\n\rb\n\x1b[2A\x1b[Jc"], &["a"], &["c"]);
        check(&["\ra\n\rb\x1b[A\x1b[Bc\x1b[Gd"], &[], &["a", "dc"]);
    }

    #[test]
    fn recorded_bars_end_as_on_a_terminal() {
        for (name, bytes) in [
            ("nested", &include_bytes!("../../../tests/vectors/bars/nested.bytes")[..]),
            ("trainer", include_bytes!("../../../tests/vectors/bars/trainer.bytes")),
            ("leave", include_bytes!("../../../tests/vectors/bars/leave.bytes")),
        ] {
            for size in [1, 7, 64, bytes.len()] {
                let lines = read_all(bytes.chunks(size));
                assert_eq!(lines, on_terminal(bytes), "{name}, pieces of {size}");
            }
        }
    }

    /// The first frame of rich is written as lines, so it becomes lines.
    #[test]
    fn recorded_rich_leaves_one_frame() {
        let bytes = include_bytes!("../../../tests/vectors/bars/rich.bytes");
        let lines = read_all(bytes.chunks(64));
        let end = on_terminal(bytes);
        assert_eq!(lines[lines.len() - end.len()..], end, "{lines:#?}");
        assert!(lines.len() <= end.len() + 2, "{lines:#?}");
    }

    #[test]
    fn rows_left_alone_become_final() {
        let (mut emulator, mut done) = fed([&b"\r100%\n"[..]]);
        assert!(emulator.holds_rows() && done.is_empty());
        emulator.finalize_idle_rows(&mut done);
        assert!(emulator.is_idle());
        assert_eq!(texts(done), ["100%"]);
    }

    #[test]
    fn plain_lines_after_bars_end_emulation() {
        let bars = "\repoch\n\rbatch\x1b[A\n\r     \x1b[A\repoch 100%\n";
        let lines = "line\n".repeat(200);
        let (emulator, done) = fed([bars.as_bytes(), lines.as_bytes()]);
        assert!(emulator.is_idle());
        assert_eq!(done.len(), 201);
    }

    #[test]
    fn memory_of_a_screen_is_bounded() {
        let (emulator, done) = fed([&b"\x1b[A\ra\n".repeat(5)[..], &b"\rb\n".repeat(1000)]);
        assert!(emulator.rows.len() <= ROWS_MAX);
        assert!(900 < done.len());
        let (emulator, done) = fed([&b"\r"[..], &vec![b'x'; 10 * COLUMNS_MAX + 5]]);
        assert!(emulator.rows[0].text.width() <= COLUMNS_MAX);
        assert_eq!(done.iter().filter(|line| line.continues).count(), 10);
        let (emulator, _) = fed([&b"\x1b[9999999999A\x1b[99999999B\x1b[999999999Cx"[..]]);
        assert!(emulator.rows[0].text.width() <= COLUMNS_MAX);
    }

    const WRITTEN: &str = "(a{1,4}|b|漢|é| {1,3}|\n|\r|\r|\u{8}|\u{1b}\\[A|\u{1b}\\[2A|\u{1b}\\[K|\u{1b}\\[2K|\u{1b}\\[J\
         |\u{1b}\\[31m|\u{1b}\\[m){0,40}";

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]
        /// Does not hold if a program returns to a row that was taken for final.
        #[test]
        fn screen_shows_what_a_terminal_shows(text in WRITTEN) {
            let (mut emulator, mut done) = fed([text.as_bytes()]);
            if !emulator.take_hit_top() {
                emulator.finish(&mut done);
                let shown: Vec<_> = done.into_iter().map(|line| strip(&line.text)).collect();
                let shown: Vec<_> = shown.into_iter().filter(|line| !line.is_empty()).collect();
                proptest::prop_assert_eq!(shown, on_terminal(text.as_bytes()));
            }
        }

        #[test]
        fn cuts_between_pieces_do_not_matter(text in WRITTEN, size in 1usize..9) {
            let bytes = text.as_bytes();
            proptest::prop_assert_eq!(read_all(bytes.chunks(size)), read_all([bytes]));
        }
    }

    /// Text without colours.
    fn strip(text: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(text).into_owned();
        while let Some(start) = text.find('\x1b') {
            let end = start + text[start..].find('m').expect("colours only") + 1;
            text.replace_range(start..end, "");
        }
        text.trim_end().to_owned()
    }
}

//! Standard output and standard error: lines in order, and below them, on a terminal, the status
//! area, which is erased before a line is written and drawn again after it.

use std::os::fd::OwnedFd;

use memchr::memchr_iter;
use rustix::io::Errno;

use super::properties::StatusPlace;
use super::sink::{OfferResult, Sink};
use crate::wire::Stream;

/// Moves the cursor to the first column and erases the rest of the row.
const ERASE_ROW: &str = "\r\x1b[K";

/// The two screens, for lines of remuda and of the workers.
pub(in crate::report) struct Screens {
    stdout: Screen,
    /// `None`: the same terminal, pipe or file as `stdout`, so that lines of workers, messages and status
    /// line are written in one order.
    stderr: Option<Screen>,
    dropped_lines: u64,
}

/// Standard output or standard error, with the status area if it is drawn there.
struct Screen {
    sink: Sink,
    pending: Vec<u8>,
    /// Result of the newest write.
    last_offer: OfferResult,
    footer: Footer,
}

/// The status area of a screen.
struct Footer {
    /// Rows with line ends between them.
    text: Vec<u8>,
    /// Number of rows that are on the screen.
    drawn: usize,
    /// Whether a row that is drawn now begins in the first column: a prompt may stand behind the
    /// last line.
    is_line_start: bool,
    /// Whether the terminal may have echoed a key behind the cursor.
    has_echo: bool,
}

impl Screens {
    pub(in crate::report) fn new(stdout: OwnedFd, stderr: OwnedFd, status: StatusPlace) -> Self {
        let is_one = status == StatusPlace::Shared || is_same_file(&stdout, &stderr);
        let stderr = (!is_one).then(|| Screen::new(stderr));
        Self { stdout: Screen::new(stdout), stderr, dropped_lines: 0 }
    }

    /// Output of a stream that has not been shown yet; whole lines may be added.
    pub(in crate::report) fn pending(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stdout => &mut self.stdout.pending,
            Stream::Stderr => &mut self.err().pending,
        }
    }

    pub(in crate::report) fn pending_bytes(&self) -> usize {
        self.stdout.pending.len() + self.stderr.as_ref().map_or(0, |screen| screen.pending.len())
    }

    fn err(&mut self) -> &mut Screen {
        self.stderr.as_mut().unwrap_or(&mut self.stdout)
    }

    /// Sets the status area and draws it, at once or with the next flush. False if it could not be
    /// drawn yet and should be set again.
    pub(in crate::report) fn set_status(&mut self, text: &str) -> bool {
        self.err().set_footer(text.as_bytes())
    }

    /// Turns the last row of the status area into a line: the terminal echoed a line end behind it.
    pub(in crate::report) fn commit_status(&mut self) {
        let footer = &mut self.err().footer;
        footer.text.clear();
        (footer.drawn, footer.is_line_start) = (0, true);
    }

    /// The terminal may have echoed a key behind the cursor, such as `^\`.
    pub(in crate::report) fn expect_echo(&mut self) {
        self.err().footer.has_echo = true;
    }

    /// Adds lines of remuda to standard error; they begin in the first column, also after a line without an
    /// end.
    pub(in crate::report) fn push_message(&mut self, text: &[u8]) {
        let screen = self.err();
        let is_line_start = match screen.pending.last() {
            Some(last) => *last == b'\n',
            None => screen.footer.is_line_start,
        };
        if !is_line_start && !text.is_empty() {
            screen.pending.push(b'\n');
        }
        screen.pending.extend_from_slice(text);
    }

    /// Writes the pending output; true unless a screen does not accept it.
    pub(in crate::report) fn flush(&mut self) -> bool {
        let dropped: u64 = self.screens_mut().map(Screen::flush).sum();
        self.dropped_lines += dropped;
        !self.has_stalled()
    }

    /// Whether a screen accepted nothing at the last write.
    pub(in crate::report) fn has_stalled(&self) -> bool {
        std::iter::once(&self.stdout).chain(&self.stderr).any(Screen::is_stalled)
    }

    /// Checks which screens accept output again.
    pub(in crate::report) fn recheck_stalled(&mut self) {
        for screen in self.screens_mut().filter(|screen| screen.is_stalled()) {
            if screen.sink.has_room() {
                screen.last_offer = OfferResult::Queued;
            }
        }
    }

    /// Lines that were dropped since the last call.
    pub(in crate::report) fn take_dropped_lines(&mut self) -> u64 {
        std::mem::take(&mut self.dropped_lines)
    }

    /// Waits until the accepted output is written, as long as the screens make progress.
    pub(in crate::report) fn drain(&mut self) {
        self.screens_mut().for_each(|screen| screen.sink.drain());
    }

    /// Waits until all output is shown, as long as the screens accept it.
    pub(in crate::report) fn finish(&mut self) {
        let dropped =
            self.screens_mut().map(|screen| screen.flush() + screen.sink.finish()).sum::<u64>();
        self.dropped_lines += dropped;
    }

    /// Why standard output cannot be written any more; `EPIPE` if its reader has closed it.
    pub(in crate::report) fn failure(&self) -> Option<Errno> {
        self.stdout.sink.failure()
    }

    fn screens_mut(&mut self) -> impl Iterator<Item = &mut Screen> {
        std::iter::once(&mut self.stdout).chain(&mut self.stderr)
    }
}

/// Whether two descriptors lead to the same terminal, pipe or file.
fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    let identity = |fd| rustix::fs::fstat(fd).map(|found| (found.st_dev, found.st_ino)).ok();
    identity(one).is_some_and(|file| identity(other) == Some(file))
}

impl Screen {
    fn new(fd: OwnedFd) -> Self {
        let footer = Footer::new();
        Self { sink: Sink::start(fd), pending: Vec::new(), last_offer: OfferResult::Queued, footer }
    }

    fn is_stalled(&self) -> bool {
        self.last_offer == OfferResult::Stalled
    }

    /// Sets the status area. An empty area is erased at once. Another one is postponed while older
    /// bytes are being written, because it would be outdated when they are done.
    fn set_footer(&mut self, text: &[u8]) -> bool {
        let is_new = self.footer.text != text;
        self.footer.text = text.to_vec();
        let is_current = !is_new && (0 < self.footer.drawn) == self.footer.can_be_drawn();
        if is_current || !self.pending.is_empty() {
            return true;
        }
        if !text.is_empty() && !self.sink.is_idle() {
            return false;
        }
        self.offer(Vec::new());
        true
    }

    /// Writes the pending lines; returns how many were lost.
    fn flush(&mut self) -> u64 {
        if self.pending.is_empty() {
            return 0;
        }
        let bytes = std::mem::replace(&mut self.pending, self.sink.take_buffer());
        self.offer(bytes)
    }

    /// Passes lines to the sink; returns how many were lost.
    fn offer(&mut self, lines: Vec<u8>) -> u64 {
        let before = (self.footer.drawn, self.footer.is_line_start);
        let mut bytes = self.footer.wrap(lines);
        if bytes.is_empty() {
            return 0;
        }
        self.last_offer = self.sink.offer(&mut bytes);
        if self.last_offer != OfferResult::Stalled {
            return 0;
        }
        (self.footer.drawn, self.footer.is_line_start) = before;
        memchr_iter(b'\n', &bytes).count() as u64
    }
}

impl Footer {
    fn new() -> Self {
        Self { text: Vec::new(), drawn: 0, is_line_start: true, has_echo: false }
    }

    fn can_be_drawn(&self) -> bool {
        self.is_line_start && !self.text.is_empty()
    }

    /// Encloses lines in the sequences that erase and redraw the status area.
    fn wrap(&mut self, lines: Vec<u8>) -> Vec<u8> {
        let erase = self.erase();
        if let Some(last) = lines.last() {
            self.is_line_start = *last == b'\n';
        }
        let mut bytes = if erase.is_empty() { lines } else { [erase.as_bytes(), &lines].concat() };
        self.drawn = 0;
        if self.can_be_drawn() {
            bytes.extend_from_slice(&self.text);
            self.drawn = memchr_iter(b'\n', &self.text).count() + 1;
        }
        bytes
    }

    /// The sequence that erases the area. The cursor is behind its last row.
    fn erase(&mut self) -> String {
        let has_echo = std::mem::take(&mut self.has_echo);
        match self.drawn {
            0 if has_echo && self.is_line_start => ERASE_ROW.to_owned(),
            0 => String::new(),
            1 => ERASE_ROW.to_owned(),
            rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(footer: &mut Footer, lines: &str, expect: &str) {
        let bytes = footer.wrap(lines.as_bytes().to_vec());
        assert_eq!(String::from_utf8_lossy(&bytes), expect);
    }

    #[test]
    fn lines_and_status_line_never_share_a_line() {
        let footer = &mut Footer::new();
        check(footer, "a\n", "a\n");
        footer.text = b"1%".to_vec();
        check(footer, "", "1%");
        check(footer, "b\nc\n", "\r\x1b[Kb\nc\n1%");
        // A prompt without an end of line stays in place until it has one.
        check(footer, "name? ", "\r\x1b[Kname? ");
        check(footer, "", "");
        check(footer, "x\n", "x\n1%");
        footer.text.clear();
        check(footer, "", "\r\x1b[K");
        check(footer, "d\n", "d\n");
    }

    /// Reads what screens with these descriptors write for a line of a worker without an end and a message.
    fn message_after_unended_line(stream: Stream, is_one: bool) -> String {
        let (mut read, write) = std::io::pipe().expect("a pipe");
        let null = || OwnedFd::from(std::fs::File::create("/dev/null").expect("a device"));
        let copy = || OwnedFd::from(write.try_clone().expect("a descriptor"));
        let (stdout, stderr) = if is_one { (copy(), copy()) } else { (null(), copy()) };
        let mut screens = Screens::new(stdout, stderr, StatusPlace::Nowhere);
        screens.pending(stream).extend_from_slice(b"last words");
        screens.flush();
        screens.push_message(b"Finished\n");
        screens.finish();
        drop((screens, write));
        let mut shown = vec![0; 64];
        let length = std::io::Read::read(&mut read, &mut shown).expect("written");
        String::from_utf8_lossy(&shown[..length]).into_owned()
    }

    #[test]
    fn message_begins_a_line_of_its_own() {
        let expect = "last words\nFinished\n";
        assert_eq!(message_after_unended_line(Stream::Stdout, true), expect);
        assert_eq!(message_after_unended_line(Stream::Stderr, false), expect);
    }

    #[test]
    fn area_of_several_rows_is_erased_whole() {
        let footer = &mut Footer::new();
        footer.text = b"epoch\nbatch".to_vec();
        check(footer, "a\n", "a\nepoch\nbatch");
        footer.text = b"epoch\nbatch\nmicro".to_vec();
        check(footer, "b\n", "\r\x1b[1A\x1b[Jb\nepoch\nbatch\nmicro");
        footer.text = b"epoch".to_vec();
        check(footer, "", "\r\x1b[2A\x1b[Jepoch");
        footer.text.clear();
        check(footer, "c\n", "\r\x1b[Kc\n");
    }

    #[test]
    fn echo_of_a_key_is_erased_before_a_line() {
        let footer = &mut Footer::new();
        footer.has_echo = true;
        check(footer, "State\n", "\r\x1b[KState\n");
        check(footer, "name? ", "name? ");
        footer.has_echo = true;
        check(footer, "\nState\n", "\nState\n");
    }
}

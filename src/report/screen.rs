//! Our two descriptors as a person sees them: lines in order, and below them, on a terminal, the
//! status line, which is taken away before a line comes and put back after it.

use std::os::fd::OwnedFd;

use memchr::memchr_iter;
use rustix::io::Errno;

use super::sink::{Offered, Sink};
use super::terminal::StatusPlace;
use crate::wire::Stream;

/// Takes the status line away: to the first column, and everything behind it is erased.
const ERASE: &[u8] = b"\r\x1b[K";

/// What becomes of our lines and of those of the workers.
pub(super) struct Screens {
    stdout: Screen,
    /// `None`: the same terminal as `stdout`, so that lines and status line come in one order.
    stderr: Option<Screen>,
    lost_lines: u64,
}

/// One of them.
struct Screen {
    sink: Sink,
    pending: Vec<u8>,
    /// What became of the newest bytes.
    offered: Offered,
    footer: Footer,
}

/// The status line of a screen.
struct Footer {
    text: Vec<u8>,
    is_drawn: bool,
    /// Whether a line drawn now would have a line of its own: a prompt may wait behind the last one.
    is_line_start: bool,
}

impl Screens {
    pub(super) fn new(stdout: OwnedFd, stderr: OwnedFd, status: StatusPlace) -> Self {
        let stderr = (status != StatusPlace::Shared).then(|| Screen::new(stderr));
        Self { stdout: Screen::new(stdout), stderr, lost_lines: 0 }
    }

    /// What waits to be shown of a stream; whole lines may be added.
    pub(super) fn pending(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stdout => &mut self.stdout.pending,
            Stream::Stderr => &mut self.err().pending,
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.stdout.pending.len() + self.stderr.as_ref().map_or(0, |screen| screen.pending.len())
    }

    fn err(&mut self) -> &mut Screen {
        self.stderr.as_mut().unwrap_or(&mut self.stdout)
    }

    /// Sets the status line and draws it, or leaves that to the next flush. False if it could not be
    /// drawn yet and should be set again.
    pub(super) fn set_status(&mut self, text: &str) -> bool {
        self.err().set_footer(text.as_bytes())
    }

    /// Hands over what waits; true unless a screen stands still.
    pub(super) fn flush(&mut self) -> bool {
        let lost: u64 = self.all().map(Screen::flush).sum();
        self.lost_lines += lost;
        !self.stand_still()
    }

    /// Whether a screen took nothing when it was last offered something.
    pub(super) fn stand_still(&self) -> bool {
        std::iter::once(&self.stdout).chain(&self.stderr).any(Screen::stands_still)
    }

    /// Sees which of them have moved on.
    pub(super) fn look_again(&mut self) {
        for screen in self.all().filter(|screen| screen.stands_still()) {
            if screen.sink.has_room() {
                screen.offered = Offered::Taken;
            }
        }
    }

    /// Lines that were not shown since this was last asked.
    pub(super) fn take_lost_lines(&mut self) -> u64 {
        std::mem::take(&mut self.lost_lines)
    }

    /// Waits until what was handed over is written, as long as the screens move.
    pub(super) fn settle(&mut self) {
        self.all().for_each(|screen| screen.sink.settle());
    }

    /// Waits until everything is shown, as long as the screens take it.
    pub(super) fn finish(&mut self) {
        let lost = self.all().map(|screen| screen.flush() + screen.sink.finish()).sum::<u64>();
        self.lost_lines += lost;
    }

    /// Why nothing more can be written on standard output; `EPIPE` when nobody reads.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.stdout.sink.failure()
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Screen> {
        std::iter::once(&mut self.stdout).chain(&mut self.stderr)
    }
}

impl Screen {
    fn new(fd: OwnedFd) -> Self {
        let footer = Footer { text: Vec::new(), is_drawn: false, is_line_start: true };
        Self { sink: Sink::start(fd), pending: Vec::new(), offered: Offered::Taken, footer }
    }

    fn stands_still(&self) -> bool {
        self.offered == Offered::Stalled
    }

    /// An empty one is taken away at once. Another waits while older bytes are on their way: it would
    /// be old itself when they are there.
    fn set_footer(&mut self, text: &[u8]) -> bool {
        let is_new = self.footer.text != text;
        self.footer.text = text.to_vec();
        let is_right = !is_new && self.footer.is_drawn == self.footer.can_be_drawn();
        if is_right || !self.pending.is_empty() {
            return true;
        }
        if !text.is_empty() && !self.sink.is_idle() {
            return false;
        }
        self.offer(Vec::new());
        true
    }

    /// Returns how many lines were lost.
    fn flush(&mut self) -> u64 {
        if self.pending.is_empty() {
            return 0;
        }
        let bytes = std::mem::replace(&mut self.pending, self.sink.spare());
        self.offer(bytes)
    }

    /// Returns how many lines were lost.
    fn offer(&mut self, lines: Vec<u8>) -> u64 {
        let before = (self.footer.is_drawn, self.footer.is_line_start);
        let mut bytes = self.footer.around(lines);
        if bytes.is_empty() {
            return 0;
        }
        self.offered = self.sink.offer(&mut bytes);
        if self.offered != Offered::Stalled {
            return 0;
        }
        (self.footer.is_drawn, self.footer.is_line_start) = before;
        memchr_iter(b'\n', &bytes).count() as u64
    }
}

impl Footer {
    fn can_be_drawn(&self) -> bool {
        self.is_line_start && !self.text.is_empty()
    }

    /// Lines with the status line taken away before them and drawn after them.
    fn around(&mut self, lines: Vec<u8>) -> Vec<u8> {
        if let Some(last) = lines.last() {
            self.is_line_start = *last == b'\n';
        }
        let mut bytes = if self.is_drawn { [ERASE, &lines].concat() } else { lines };
        self.is_drawn = self.can_be_drawn();
        if self.is_drawn {
            bytes.extend_from_slice(&self.text);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(footer: &mut Footer, lines: &str, expect: &str) {
        let bytes = footer.around(lines.as_bytes().to_vec());
        assert_eq!(String::from_utf8_lossy(&bytes), expect);
    }

    #[test]
    fn lines_and_status_line_never_share_a_line() {
        let footer = &mut Footer { text: Vec::new(), is_drawn: false, is_line_start: true };
        check(footer, "a\n", "a\n");
        footer.text = b"1%".to_vec();
        check(footer, "", "1%");
        check(footer, "b\nc\n", "\r\x1b[Kb\nc\n1%");
        // A prompt without an end of line keeps its place until it has one.
        check(footer, "name? ", "\r\x1b[Kname? ");
        check(footer, "", "");
        check(footer, "x\n", "x\n1%");
        footer.text.clear();
        check(footer, "", "\r\x1b[K");
        check(footer, "d\n", "d\n");
    }
}

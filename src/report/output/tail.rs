//! The last lines of a stream, and when they were received.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::base::clock;
use crate::job::{Evidence, last_traceback};
use crate::report::emulation::final_screen;

/// Most bytes that are kept.
const TAIL_BYTES_MAX: usize = 32 * 1024;
/// Most lines shown of a Python traceback.
const TRACEBACK_LINES_MAX: usize = 200;
/// Most lines shown otherwise.
const LINES_MAX: usize = 20;

/// Most receive times that are kept; pieces within [`ARRIVAL_RESOLUTION`] count as one.
const ARRIVALS_MAX: usize = 256;
const ARRIVAL_RESOLUTION: Duration = Duration::from_millis(1);

/// Keeps the newest bytes of one stream.
#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    /// Bytes of the stream so far.
    total: u64,
    /// Length of the stream at certain times, oldest first.
    arrivals: VecDeque<(u64, Instant)>,
}

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.note_arrival(clock::now());
        let newest = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
        let room = TAIL_BYTES_MAX - newest.len();
        if room < self.bytes.len() {
            self.bytes.drain(..self.bytes.len() - room);
        }
        self.bytes.extend_from_slice(newest);
    }

    fn note_arrival(&mut self, now: Instant) {
        if let Some((total, at)) = self.arrivals.back_mut()
            && now.saturating_duration_since(*at) < ARRIVAL_RESOLUTION
        {
            *total = self.total;
            return;
        }
        if self.arrivals.len() == ARRIVALS_MAX {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back((self.total, now));
    }

    /// Position in the stream of the first byte that is kept.
    fn start(&self) -> u64 {
        self.total - self.bytes.len() as u64
    }

    /// When a byte that is kept was received.
    fn arrived_at(&self, offset: usize) -> Instant {
        let position = self.start() + offset as u64;
        let arrival = self.arrivals.iter().find(|(total, _)| position < *total);
        arrival.map_or_else(clock::now, |(_, at)| *at)
    }

    /// When the last byte before this instant was received.
    pub(super) fn last_arrival(&self, until: Instant) -> Option<Instant> {
        let found = self.arrivals.iter().rev().map(|(_, at)| *at).find(|at| *at <= until);
        // Earlier times than those that are kept were dropped.
        found.or_else(|| (self.arrivals.len() == ARRIVALS_MAX).then_some(until))
    }

    /// When bytes were first received at this instant or later, as far as it is kept.
    pub(super) fn first_arrival_since(&self, since: Instant) -> Option<Instant> {
        self.arrivals.iter().map(|(_, at)| *at).find(|at| since <= *at)
    }

    /// The last line that is not blank and was received before this instant.
    pub(super) fn last_line(&self, until: Instant) -> Option<String> {
        let received = self.arrivals.iter().rev().find(|(_, at)| *at <= until)?.0;
        let length = usize::try_from(received.checked_sub(self.start())?).ok()?;
        let screen = final_screen(self.bytes.get(..length)?);
        let mut lines = screen.rsplit(|byte| *byte == b'\n').map(String::from_utf8_lossy);
        lines.find(|line| !line.trim().is_empty()).map(std::borrow::Cow::into_owned)
    }

    /// The part of the stream that explains a failure of its worker.
    pub(super) fn evidence(&self) -> Option<Evidence> {
        Evidence::of_output(&self.bytes, |offset| self.arrived_at(offset))
    }

    /// Position in the stream of the traceback that ended the worker.
    pub(super) fn traceback_start(&self) -> Option<u64> {
        last_traceback(&self.bytes).map(|found| self.start() + found.offset as u64)
    }

    /// Bytes of the stream so far.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The lines from the traceback that ended the worker, or else the last lines.
    pub(super) fn last_lines(&self) -> Vec<Vec<u8>> {
        let bytes = &final_screen(&self.bytes);
        let (from, lines_max) = match last_traceback(bytes) {
            Some(found) => (found.offset, TRACEBACK_LINES_MAX),
            None => (0, LINES_MAX),
        };
        let lines: Vec<&[u8]> = bytes[from..].split(|byte| *byte == b'\n').collect();
        let lines = match lines.split_last() {
            Some(([], rest)) => rest,
            _ => &lines,
        };
        let from = lines.len().saturating_sub(lines_max);
        lines[from..].iter().map(|line| line.to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_lines(text: &str) -> Vec<String> {
        let mut tail = Tail::default();
        text.as_bytes().chunks(7).for_each(|chunk| tail.push(chunk));
        let lines = tail.last_lines();
        lines.into_iter().map(|line| String::from_utf8(line).expect("text")).collect()
    }

    #[test]
    fn traceback_is_shown_from_its_first_line() {
        let text = "x\nTraceback (most recent call last):\n  File \"a\"\nValueError: b\n";
        assert_eq!(last_lines(text), text.lines().skip(1).collect::<Vec<_>>());
    }

    #[test]
    fn traceback_is_shown_without_the_bar_before_it() {
        let shown = "Traceback (most recent call last):\n  File \"a\"\nValueError: b\n";
        let lines = last_lines(&format!("x\n\r 25%|██▌  | 4/16 [00:01<00:02]{shown}"));
        assert_eq!(lines, shown.lines().collect::<Vec<_>>());
    }

    #[test]
    fn traceback_with_rank_of_torch_is_shown_whole() {
        let text = "x\n[rank2]: Traceback (most recent call last):\n[rank2]:   File \"a\"\n[rank2]: ValueError: b\n";
        assert_eq!(last_lines(text), text.lines().skip(1).collect::<Vec<_>>());
    }

    #[test]
    fn arrival_time_of_a_kept_byte_is_known() {
        let mut tail = Tail::default();
        let start = clock::now();
        for (total, ms) in [(10, 0), (20, 5), (30, 9)] {
            tail.total = total;
            tail.note_arrival(start + Duration::from_millis(ms));
        }
        tail.bytes = vec![b'x'; 25];
        for (offset, ms) in [(0, 0), (4, 0), (5, 5), (14, 5), (15, 9), (24, 9)] {
            assert_eq!(tail.arrived_at(offset), start + Duration::from_millis(ms), "{offset}");
        }
        let last = |tail: &Tail, ms| tail.last_arrival(start + Duration::from_millis(ms));
        assert_eq!(last(&tail, 7), Some(start + Duration::from_millis(5)));
        let first = |ms| tail.first_arrival_since(start + Duration::from_millis(ms));
        assert_eq!(first(1), Some(start + Duration::from_millis(5)));
        assert_eq!((first(5), first(10)), (first(1), None));
        for later in 1..10_000 {
            tail.note_arrival(start + Duration::from_secs(later));
        }
        assert_eq!(tail.arrivals.len(), ARRIVALS_MAX);
        assert_eq!(last(&tail, 7), Some(start + Duration::from_millis(7)), "dropped");
        assert_eq!(Tail::default().last_arrival(start), None);
    }

    #[test]
    fn last_line_before_an_instant_is_found() {
        let mut tail = Tail::default();
        let start = clock::now();
        assert_eq!(tail.last_line(start), None);
        tail.bytes = b"one\ntwo\n\nlater\n".to_vec();
        for (total, ms) in [(9, 0), (15, 5)] {
            tail.total = total;
            tail.note_arrival(start + Duration::from_millis(ms));
        }
        let line = |ms| tail.last_line(start + Duration::from_millis(ms));
        assert_eq!((line(4).as_deref(), line(5).as_deref()), (Some("two"), Some("later")));
    }

    #[test]
    fn last_twenty_lines_are_shown_without_traceback() {
        let text = (0..100).fold(String::new(), |text, line| text + &format!("line {line}\n"));
        let lines = last_lines(&text);
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[19], "line 99");
    }

    #[test]
    fn last_lines_hold_no_control_of_bars() {
        let bars = "\repoch 0%|\n\rbatch 0%|\x1b[A\n\rbatch 9%|\x1b[A\n\nKilled\n";
        assert_eq!(last_lines(bars), ["epoch 0%|", "batch 9%|", "Killed"]);
        assert_eq!(last_lines("dos\r\n1%\r2%"), ["dos", "2%"]);
    }

    #[test]
    fn tail_memory_is_bounded() {
        let mut tail = Tail::default();
        for _ in 0..100 {
            tail.push(&[b'x'; 5000]);
            tail.push(&vec![b'y'; 50_000]);
        }
        assert_eq!(tail.bytes.len(), TAIL_BYTES_MAX);
    }
}

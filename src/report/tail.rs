//! The last words of a stream.

use super::emulator::shown_in_the_end;

/// Bytes that are remembered.
const TAIL_BYTES_MAX: usize = 32 * 1024;
/// Lines shown of a Python traceback.
const TRACEBACK_LINES_MAX: usize = 200;
/// Lines shown otherwise.
const LINES_MAX: usize = 20;

/// Remembers the newest bytes of one stream.
#[derive(Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let newest = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
        let room = TAIL_BYTES_MAX - newest.len();
        if room < self.0.len() {
            self.0.drain(..self.0.len() - room);
        }
        self.0.extend_from_slice(newest);
    }

    /// From the last traceback on, else the last lines.
    pub(super) fn last_lines(&self) -> Vec<Vec<u8>> {
        let text = shown_in_the_end(&self.0);
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let lines = match lines.split_last() {
            Some(([], rest)) => rest,
            _ => &lines,
        };
        let traceback = lines.iter().rposition(|line| line.starts_with(b"Traceback (most recent"));
        let from = match traceback {
            Some(start) => start.max(lines.len().saturating_sub(TRACEBACK_LINES_MAX)),
            None => lines.len().saturating_sub(LINES_MAX),
        };
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
    fn a_traceback_is_shown_from_its_first_line() {
        let text = "x\nTraceback (most recent call last):\n  File \"a\"\nValueError: b\n";
        assert_eq!(last_lines(text), text.lines().skip(1).collect::<Vec<_>>());
    }

    #[test]
    fn otherwise_the_last_twenty_lines() {
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
    fn memory_is_bounded() {
        let mut tail = Tail::default();
        for _ in 0..100 {
            tail.push(&[b'x'; 5000]);
            tail.push(&vec![b'y'; 50_000]);
        }
        assert_eq!(tail.0.len(), TAIL_BYTES_MAX);
    }
}

//! A pseudo-terminal whose screen a test reads.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::wait_for_or;

/// Default width of the terminals of these tests.
const WIDTH: u16 = 80;

/// Opens a pseudo-terminal: the test's end, and the end that is the terminal of a program.
pub(crate) fn open() -> (OwnedFd, OwnedFd) {
    let test_end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&test_end).expect("granted");
    unlockpt(&test_end).expect("unlocked");
    let name = ptsname(&test_end, Vec::new()).expect("a name");
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let program_end = File::options().read(true).write(true).open(path).expect("the other end");
    set_width(&program_end, WIDTH);
    (test_end, program_end.into())
}

/// Sets the width of a terminal in columns.
pub(crate) fn set_width(terminal: impl AsFd, columns: u16) {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("it has a size");
}

/// A recording of everything written to a terminal, until its other end is closed.
pub(crate) struct Recording {
    sent: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Recording {
    pub(crate) fn start(test_end: OwnedFd) -> Self {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&sent);
        let thread = std::thread::spawn(move || {
            let (mut terminal, mut buffer) = (File::from(test_end), [0; 4096]);
            // Reading fails once the other end is closed.
            while let Ok(length @ 1..) = terminal.read(&mut buffer) {
                shared.lock().expect("no panic").extend_from_slice(&buffer[..length]);
            }
        });
        Self { sent, thread }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().expect("no panic")).into_owned()
    }

    /// Waits until `text` was written to the terminal.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        let is_there = || self.so_far().contains(text).then_some(());
        let newest = || self.so_far().chars().rev().take(2000).collect::<Vec<_>>();
        let newest = || newest().into_iter().rev().collect::<String>();
        wait_for_or(|| format!("`{text}` in {:?}", newest()), is_there);
    }

    /// The whole recording, with each CRLF of the terminal replaced by a newline.
    pub(crate) fn end(self) -> String {
        self.thread.join().expect("reads to the end");
        let sent = std::mem::take(&mut *self.sent.lock().expect("no panic"));
        String::from_utf8(sent).expect("text").replace("\r\n", "\n")
    }
}

/// The lines on a terminal of unlimited height after this output, without colours. `frames` gets
/// the line of the cursor before each change of it.
pub(crate) fn play(sent: &str, mut frames: impl FnMut(&str)) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::<char>::new()], 0, 0);
    let mut rest = sent.chars();
    while let Some(character) = rest.next() {
        let line = &mut lines[row];
        match character {
            '\n' => {
                (row, column) = (row + 1, 0);
                if row == lines.len() {
                    lines.push(Vec::new());
                }
            }
            '\r' => {
                frames(&line.iter().collect::<String>());
                column = 0;
            }
            '\x1b' => {
                let number = rest.as_str().trim_start_matches('[');
                let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
                let number = number[..digits].parse().unwrap_or(1);
                match rest.by_ref().find(char::is_ascii_alphabetic) {
                    Some('K') => line.truncate(column),
                    Some('J') => {
                        line.truncate(column);
                        lines.truncate(row + 1);
                    }
                    Some('A') => row = row.saturating_sub(number),
                    Some('m') => {}
                    other => panic!("the terminal was sent {other:?} in {sent:?}"),
                }
            }
            _ => {
                line.resize((column + 1).max(line.len()), ' ');
                line[column] = character;
                column += 1;
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

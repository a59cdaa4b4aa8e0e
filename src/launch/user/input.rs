//! Forwarding of the launcher's standard input to workers.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::base::Rank;
use crate::os::files::fds;
use crate::os::process::signals;

/// Maximum size of one piece of input.
const PIECE_BYTES: usize = 16 * 1024;
/// Interval at which a job in the background checks whether it is in the foreground.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of pieces that wait while the links are busy.
const PIECES_MAX: usize = 4;

/// Maximum number of bytes sent to a worker that it has not read; further input is not read.
const UNREAD_BYTES_MAX: u64 = 256 * 1024;

/// Standard input, read as fast as its slowest reader.
#[derive(Default)]
pub(in crate::launch) struct Input {
    pieces: Option<mpsc::Receiver<Vec<u8>>>,
    /// Whether the reading thread was ever started.
    is_started: bool,
    /// Number of bytes that each reader was sent and has not read.
    unread: BTreeMap<Rank, u64>,
}

impl Input {
    /// Starts reading if there are readers. The workers of a later epoch get the input that the
    /// earlier ones have left.
    pub(in crate::launch) fn start(&mut self, readers: impl Iterator<Item = Rank>) {
        self.unread = readers.map(|rank| (rank, 0)).collect();
        if !self.unread.is_empty() && !self.is_started {
            (self.pieces, self.is_started) = (Some(start_reader_thread()), true);
        }
    }

    /// The next piece; the last one is empty. Counts it as sent to every reader.
    pub(in crate::launch) async fn next(&mut self) -> Vec<u8> {
        // Without readers the input is left to the next program that reads it.
        let wanted = !self.unread.is_empty()
            && self.unread.values().all(|unread| *unread < UNREAD_BYTES_MAX);
        let piece = match &mut self.pieces {
            Some(pieces) if wanted => pieces.recv().await,
            Some(_) | None => None,
        };
        let Some(piece) = piece else {
            return std::future::pending().await;
        };
        if piece.is_empty() {
            self.pieces = None;
        }
        for unread in self.unread.values_mut() {
            *unread += piece.len() as u64;
        }
        piece
    }

    /// Workers that read standard input.
    pub(in crate::launch) fn readers(&self) -> impl Iterator<Item = Rank> {
        self.unread.keys().copied()
    }

    /// Notes that a reader has read this many bytes.
    pub(in crate::launch) fn on_consumed(&mut self, rank: Rank, bytes: u64) {
        if let Some(unread) = self.unread.get_mut(&rank) {
            *unread = unread.saturating_sub(bytes);
        }
    }

    /// Removes a reader that has exited, so that the others do not wait for it.
    pub(in crate::launch) fn remove_reader(&mut self, rank: Rank) {
        self.unread.remove(&rank);
    }
}

/// Starts a thread that reads standard input and ends with the process. The last piece is empty.
fn start_reader_thread() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let read = move || {
        signals::block(&[libc::SIGTTIN]);
        loop {
            let piece = read_piece();
            let ended = piece.is_empty();
            if sender.blocking_send(piece).is_err() || ended {
                return;
            }
        }
    };
    // Without a thread there is no input.
    let _ = std::thread::Builder::new().name("stdin".to_owned()).spawn(read);
    receiver
}

/// Waits for input; on a terminal, until the job is in the foreground: a job in the background
/// (`&`, `bg`) must not be stopped by its attempt to read.
fn read_piece() -> Vec<u8> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        while !is_in_foreground() {
            std::thread::sleep(BACKGROUND_PAUSE);
        }
        match rustix::io::read(rustix::stdio::stdin(), piece.as_mut_slice()) {
            Ok(length) => {
                piece.truncate(length);
                return piece;
            }
            Err(Errno::INTR) => {}
            // The job went to the background during the read.
            Err(Errno::IO) if !is_in_foreground() => {}
            Err(_) => return Vec::new(),
        }
    }
}

fn is_in_foreground() -> bool {
    !is_terminal() || fds::is_in_foreground(std::io::stdin().as_fd())
}

/// Whether standard input is a terminal, which echoes the input.
pub(in crate::launch) fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(pieces: &[&[u8]]) -> Input {
        let (sender, receiver) = mpsc::channel(8);
        for piece in pieces {
            sender.try_send(piece.to_vec()).expect("room for a few");
        }
        Input {
            pieces: Some(receiver),
            is_started: true,
            unread: [(Rank(0), 0), (Rank(1), 0)].into(),
        }
    }

    /// Whether there is a piece now.
    fn has_next(input: &mut Input) -> bool {
        use std::future::Future;
        let next = std::pin::pin!(input.next());
        let waker = std::task::Waker::noop();
        next.poll(&mut std::task::Context::from_waker(waker)).is_ready()
    }

    #[test]
    fn input_waits_for_the_slowest_running_reader() {
        let piece = vec![0; UNREAD_BYTES_MAX as usize];
        let mut input = input(&[&piece, &piece, &piece, b""]);
        assert!(has_next(&mut input));
        input.on_consumed(Rank(0), UNREAD_BYTES_MAX);
        assert!(!has_next(&mut input), "rank 1 has read nothing");
        input.on_consumed(Rank(1), 1);
        assert!(has_next(&mut input));
        assert!(!has_next(&mut input));
        input.remove_reader(Rank(1));
        input.on_consumed(Rank(0), UNREAD_BYTES_MAX);
        assert!(has_next(&mut input));
        input.on_consumed(Rank(0), UNREAD_BYTES_MAX);
        assert!(has_next(&mut input), "the end");
        assert!(!has_next(&mut input), "nothing comes after it");
    }

    #[test]
    fn input_without_readers_is_not_read() {
        let mut input = input(&[b"for another program"]);
        input.remove_reader(Rank(0));
        input.remove_reader(Rank(1));
        assert!(!has_next(&mut input));
    }
}

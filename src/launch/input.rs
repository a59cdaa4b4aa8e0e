//! Our standard input on its way to workers.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use tokio::sync::mpsc;

use crate::base::Rank;

/// One piece of input.
const PIECE_BYTES: usize = 16 * 1024;
/// Pieces that wait while the links are busy.
const PIECES_MAX: usize = 4;

/// Bytes that a worker may have been sent and not taken; a slow one holds up the reading.
const UNTAKEN_BYTES_MAX: u64 = 64 * 1024;

/// What is read, and how much of it workers have not taken yet.
#[derive(Default)]
pub(super) struct Input {
    /// `None` when nothing is read, or nothing more.
    pieces: Option<mpsc::Receiver<Vec<u8>>>,
    untaken: BTreeMap<Rank, u64>,
}

impl Input {
    /// Starts to read.
    pub(super) fn read() -> Self {
        Self { pieces: Some(read_pieces()), untaken: BTreeMap::new() }
    }

    /// The next piece, once every worker has room for it; the last is empty.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let full = self.untaken.values().any(|untaken| UNTAKEN_BYTES_MAX < *untaken);
        let Some(pieces) = self.pieces.as_mut().filter(|_| !full) else {
            return std::future::pending().await;
        };
        let piece = pieces.recv().await;
        if piece.as_ref().is_none_or(Vec::is_empty) {
            self.pieces = None;
        }
        piece
    }

    /// A worker was sent a piece.
    pub(super) fn sent(&mut self, rank: Rank, bytes: u64) {
        *self.untaken.entry(rank).or_default() += bytes;
    }

    /// A worker took some of it.
    pub(super) fn fed(&mut self, rank: Rank, bytes: u64) {
        if let Some(untaken) = self.untaken.get_mut(&rank) {
            *untaken = untaken.saturating_sub(bytes);
        }
    }

    /// A worker ended; nobody waits for it.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.untaken.remove(&rank);
    }
}

/// Reads standard input on a thread of its own, which ends with the process. The last piece is
/// empty.
fn read_pieces() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let read = move || {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::read(rustix::stdio::stdin(), piece.as_mut_slice())
            });
            piece.truncate(read.unwrap_or(0));
            let ended = piece.is_empty();
            if sender.blocking_send(piece).is_err() || ended {
                return;
            }
        }
    };
    if is_ours_to_read() {
        // Without a thread there is no input, as if it had ended.
        let _ = std::thread::Builder::new().name("stdin".to_owned()).spawn(read);
    }
    receiver
}

/// A job in the background that reads its terminal would be stopped.
fn is_ours_to_read() -> bool {
    let stdin = std::io::stdin();
    !stdin.is_terminal()
        || rustix::termios::tcgetpgrp(&stdin).is_ok_and(|group| group == rustix::process::getpgrp())
}

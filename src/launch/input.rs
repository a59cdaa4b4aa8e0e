//! Our standard input on its way to workers.

use std::io::IsTerminal;

use tokio::sync::mpsc;

/// One piece of input.
const PIECE_BYTES: usize = 16 * 1024;
/// Pieces that wait while the links are busy.
const PIECES_MAX: usize = 4;

/// Reads standard input on a thread of its own, which ends with the process. The last piece is
/// empty.
pub(super) fn pieces() -> mpsc::Receiver<Vec<u8>> {
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

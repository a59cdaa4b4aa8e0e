//! Forwards the output of workers to the launcher. Output is read in pieces, each tagged with rank
//! and stream, and never cut into lines here.
//!
//! A window limits the bytes in transit; it opens again as the launcher consumes them.
//! While the window is full, the rest stays in the worker's pipe; nothing else waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc};

use super::flow_control::{Grant, OutputWindow};
use super::rank_link::NoteReader;
use super::uplink::{EpochUplink, read};
use crate::base::Rank;
use crate::os::files::{async_fd, fds};
use crate::transport::LinkWriter;
use crate::wire::{FromAgent, OUTPUT_BYTES_MAX, Stream};

/// Fewer bytes than this are copied, which takes fewer system calls.
const MOVE_BYTES_MIN: usize = 16 * 1024;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// Every write end is closed.
    Closed,
    /// A process other than the worker still holds a write end; what the worker wrote has been
    /// read.
    HeldOpen,
}

/// One stream of one worker that is being forwarded.
pub(super) struct Forward {
    pub(super) rank: Rank,
    pub(super) stream: Stream,
    pub(super) uplink: EpochUplink,
    /// Limit of the bytes in transit.
    pub(super) window: Arc<OutputWindow>,
    /// Reader of the worker's notes, which are sent before output that was written after them.
    pub(super) note_reader: Option<Arc<NoteReader>>,
    /// Notified some time after the worker has exited: the stream is then read without waiting.
    pub(super) cancel: Arc<Notify>,
}

impl Forward {
    /// Forwards until the stream ends.
    pub(super) async fn run(&self, pipe: OwnedFd) -> io::Result<StreamEnd> {
        let pipe = async_fd::register(pipe, Interest::READABLE)?;
        let mut buffer = Vec::new();
        loop {
            let mut ready = tokio::select! {
                biased;
                () = self.cancel.notified() => return self.read_rest(&pipe, &mut buffer).await,
                ready = pipe.readable() => ready?,
            };
            match self.forward_piece(pipe.get_ref(), &mut buffer).await {
                Ok(0) => return Ok(StreamEnd::Closed),
                Ok(_) => {}
                // Everything has been read, or the wake-up was spurious.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the bytes that are in the pipe after the worker's exit, without waiting for later
    /// writes of other processes.
    async fn read_rest(
        &self,
        pipe: &AsyncFd<OwnedFd>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<StreamEnd> {
        let mut left = fds::pipe_capacity(pipe)?;
        while 0 < left {
            match self.forward_piece(pipe.get_ref(), buffer).await {
                Ok(0) => return Ok(StreamEnd::Closed),
                Ok(length) => left = left.saturating_sub(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(StreamEnd::HeldOpen)
    }

    /// Waits until bytes may be sent, and sends the content of the pipe, up to that limit. Returns
    /// the number of bytes; 0 at the end of the stream.
    async fn forward_piece(&self, pipe: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let grant = self.window.reserve(OUTPUT_BYTES_MAX).await;
        let room = grant.as_ref().map_or(OUTPUT_BYTES_MAX, Grant::bytes);
        let waiting = fds::readable_bytes(pipe)?.min(room);
        let is_open = grant.is_some();
        if is_open && MOVE_BYTES_MIN <= waiting {
            self.spend(grant, waiting).await;
            // The end of the link is detected by the task that reads it.
            let _ = self.uplink.move_output(self.rank, self.stream, pipe, waiting).await;
            return Ok(waiting);
        }
        buffer.clear();
        buffer.reserve(OUTPUT_BYTES_MAX);
        let length = read(pipe, buffer, room)?;
        // The window is closed when the launcher is lost: output read after that is discarded.
        if is_open && 0 < length {
            self.spend(grant, length).await;
            self.uplink.send_output(self.rank, self.stream, buffer).await;
        }
        Ok(length)
    }

    /// Uses up that many bytes of the window. Notes that the worker wrote earlier are sent first.
    async fn spend(&self, grant: Option<Grant<'_>>, bytes: usize) {
        if let Some(grant) = grant {
            grant.spend(bytes);
        }
        if let Some(reader) = &self.note_reader {
            reader.catch_up().await;
        }
    }
}

/// Writes received input to the standard input of a worker and reports how much the worker has
/// accepted. If the worker has closed its input, all input counts as accepted.
pub(super) async fn write_stdin(
    pipe: OwnedFd,
    rank: Rank,
    mut pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    uplink: EpochUplink,
) {
    let mut writer = LinkWriter::new(pipe).ok();
    while let Some(piece) = pieces.recv().await {
        if let Some(open) = &writer
            && open.write_all(&piece, &[]).await.is_err()
        {
            writer = None;
        }
        uplink.send_and_wait(&FromAgent::StdinConsumed { rank, bytes: piece.len() as u64 }).await;
    }
}

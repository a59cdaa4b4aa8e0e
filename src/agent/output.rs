//! Forwards the output of workers to the launcher. Output is read in pieces, each tagged with rank
//! and stream, and never cut into lines here.
//!
//! A window limits the bytes in transit; it opens again as the launcher consumes them.
//! While the window is full, the rest stays in the worker's pipe; nothing else waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, Notify, mpsc};

use super::rank_link::NoteReader;
use super::window::{Grant, OutputWindow};
use crate::base::{Epoch, Rank};
use crate::os::tasks::Tasks;
use crate::os::{fds, watch};
use crate::transport::LinkWriter;
use crate::wire::{self, FromAgent, OUTPUT_BYTES_MAX, Stream};

/// The sending side of the link to the launcher, shared by everything in the agent that sends. The
/// end of the link is detected by the task that reads it.
pub(super) struct Outbox {
    writer: Arc<Mutex<LinkWriter>>,
    /// Messages of the agent itself. Sending one never waits for a launcher that does not read,
    /// because the agent must go on checking the lease.
    queue: mpsc::UnboundedSender<Vec<u8>>,
    /// Whether sending is disabled.
    is_closed: Arc<AtomicBool>,
    /// The epoch of every message sent.
    epoch: Epoch,
}

impl Outbox {
    /// Creates the outbox and its sending task. Must be called inside a runtime.
    pub(super) fn new(writer: LinkWriter, tasks: &mut Tasks) -> Self {
        let (queue, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
        let writer = Arc::new(Mutex::new(writer));
        let shared = Arc::clone(&writer);
        tasks.spawn(async move {
            while let Some(frame) = frames.recv().await {
                let _ = shared.lock().await.write_all(&frame, &[]).await;
            }
        });
        Self { writer, queue, is_closed: Arc::default(), epoch: Epoch(0) }
    }

    /// Returns an outbox for the same link in another epoch.
    pub(super) fn for_epoch(&self, epoch: Epoch) -> Self {
        let (writer, is_closed) = (Arc::clone(&self.writer), Arc::clone(&self.is_closed));
        Self { writer, queue: self.queue.clone(), is_closed, epoch }
    }

    /// Returns the epoch of every message sent.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Queues one message, which is sent as soon as the link accepts it. Messages keep the order of
    /// the calls.
    pub(super) fn send(&self, message: &FromAgent) {
        if !self.is_closed.load(Ordering::Relaxed) {
            let _ = self.queue.send(wire::encode(self.epoch, message));
        }
    }

    /// From now on, messages given to [`Self::send`] are dropped.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Sends one message and waits until the link has accepted it: for messages that a worker
    /// causes.
    pub(super) async fn send_and_wait(&self, message: &FromAgent) {
        let frame = wire::encode(self.epoch, message);
        let _ = self.writer.lock().await.write_all(&frame, &[]).await;
    }

    async fn send_output(&self, rank: Rank, stream: Stream, bytes: &[u8]) {
        let head = wire::encode_output_head(self.epoch, rank, stream, bytes.len());
        let _ = self.writer.lock().await.write_all(&head, bytes).await;
    }

    /// Sends bytes that are in a pipe, without a copy where the link accepts pages.
    async fn move_output(
        &self,
        rank: Rank,
        stream: Stream,
        pipe: &OwnedFd,
        bytes: usize,
    ) -> io::Result<()> {
        let head = wire::encode_output_head(self.epoch, rank, stream, bytes);
        let writer = self.writer.lock().await;
        writer.write_all(&head, &[]).await?;
        match writer.move_all(pipe, bytes).await {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                // The head has announced these bytes, and they are in the pipe.
                let (mut copy, mut left) = (Vec::with_capacity(bytes), bytes);
                while 0 < left {
                    match read(pipe, &mut copy, left)? {
                        0 => break,
                        length => left -= length,
                    }
                }
                writer.write_all(&copy, &[]).await
            }
            moved => moved,
        }
    }
}

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
    pub(super) outbox: Arc<Outbox>,
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
        let pipe = watch::register(pipe, Interest::READABLE)?;
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
            let _ = self.outbox.move_output(self.rank, self.stream, pipe, waiting).await;
            return Ok(waiting);
        }
        buffer.clear();
        buffer.reserve(OUTPUT_BYTES_MAX);
        let length = read(pipe, buffer, room)?;
        // The window is closed when the launcher is lost: output read after that is discarded.
        if is_open && 0 < length {
            self.spend(grant, length).await;
            self.outbox.send_output(self.rank, self.stream, buffer).await;
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

/// Reads at most `room` bytes and appends them to the buffer. The window allows no more than that.
fn read(pipe: &OwnedFd, buffer: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    let start = buffer.len();
    if room == buffer.capacity() - start {
        return Ok(rustix::io::read(pipe, rustix::buffer::spare_capacity(buffer))?);
    }
    buffer.resize(start + room, 0);
    let read = rustix::io::read(pipe, &mut buffer[start..]);
    buffer.truncate(start + read.unwrap_or(0));
    Ok(read?)
}

/// Writes received input to the standard input of a worker and reports how much the worker has
/// accepted. If the worker has closed its input, all input counts as accepted.
pub(super) async fn write_stdin(
    pipe: OwnedFd,
    rank: Rank,
    mut pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    outbox: Arc<Outbox>,
) {
    let mut writer = LinkWriter::new(pipe).ok();
    while let Some(piece) = pieces.recv().await {
        if let Some(open) = &writer
            && open.write_all(&piece, &[]).await.is_err()
        {
            writer = None;
        }
        outbox.send_and_wait(&FromAgent::StdinConsumed { rank, bytes: piece.len() as u64 }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_never_exceeds_room() {
        let (pipe, worker) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&worker, b"abcdefghij").expect("it has room");
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(read(&pipe, &mut buffer, 3).expect("there is something"), 3);
        assert_eq!(read(&pipe, &mut buffer, 2).expect("there is more"), 2);
        assert_eq!(read(&pipe, &mut buffer, 3).expect("all that is free"), 3);
        drop(worker);
        assert_eq!(read(&pipe, &mut buffer, 20).expect("the rest"), 2);
        assert_eq!(read(&pipe, &mut buffer, 20).expect("its end"), 0);
        assert_eq!(buffer, b"abcdefghij");
    }
}

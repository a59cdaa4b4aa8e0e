//! Worker output on its way to the launcher: read in pieces, tagged, never cut into lines here.
//!
//! What may be on its way is bounded by a window of bytes, which opens again as the launcher consumes
//! them; a full window leaves the rest in the worker's pipe. Nothing else waits for it.

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

/// The way to the launcher, shared by everybody who has something to say. A launcher that is gone
/// is noticed by whoever reads the link.
pub(super) struct Outbox {
    writer: Arc<Mutex<LinkWriter>>,
    /// What the agent itself has to say. It never waits for a launcher that does not read: it must
    /// go on watching the lease.
    queue: mpsc::UnboundedSender<Vec<u8>>,
    /// Nothing more is said.
    is_closed: Arc<AtomicBool>,
    /// In which all of it is said.
    epoch: Epoch,
}

impl Outbox {
    /// Must be called inside a runtime.
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

    /// The same way in another epoch.
    pub(super) fn of(&self, epoch: Epoch) -> Self {
        let (writer, is_closed) = (Arc::clone(&self.writer), Arc::clone(&self.is_closed));
        Self { writer, queue: self.queue.clone(), is_closed, epoch }
    }

    /// In which all of it is said.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Says one thing, as soon as the link takes it; in the order of the calls.
    pub(super) fn send(&self, message: &FromAgent) {
        if !self.is_closed.load(Ordering::Relaxed) {
            let _ = self.queue.send(wire::encode(self.epoch, message));
        }
    }

    /// What is said from now on is said to nobody.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Says one thing and waits until the link has taken it: for what a worker causes.
    pub(super) async fn send_slowly(&self, message: &FromAgent) {
        let frame = wire::encode(self.epoch, message);
        let _ = self.writer.lock().await.write_all(&frame, &[]).await;
    }

    async fn send_output(&self, rank: Rank, stream: Stream, bytes: &[u8]) {
        let head = wire::encode_output_head(self.epoch, rank, stream, bytes.len());
        let _ = self.writer.lock().await.write_all(&head, bytes).await;
    }

    /// The same for bytes that are in a pipe, which are not copied where the link takes pages.
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
                // They were promised, and they are there.
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

/// Less than this is copied: that takes fewer system calls.
const MOVED_BYTES_MIN: usize = 16 * 1024;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// Nobody can write to it any more.
    Closed,
    /// Somebody still can, but not the worker; what it wrote has been read.
    Held,
}

/// One stream of one worker on its way.
pub(super) struct Forward {
    pub(super) rank: Rank,
    pub(super) stream: Stream,
    pub(super) outbox: Arc<Outbox>,
    /// How much may be on its way.
    pub(super) window: Arc<OutputWindow>,
    /// What the worker notes, which goes before what it writes afterwards.
    pub(super) ear: Option<Arc<NoteReader>>,
    /// Told when the worker has ended and its stream should have.
    pub(super) let_go: Arc<Notify>,
}

impl Forward {
    /// Forwards until the stream ends.
    pub(super) async fn run(&self, pipe: OwnedFd) -> io::Result<StreamEnd> {
        let pipe = watch::watch(pipe, Interest::READABLE)?;
        let mut buffer = Vec::new();
        loop {
            let mut ready = tokio::select! {
                biased;
                () = self.let_go.notified() => return self.read_rest(&pipe, &mut buffer).await,
                ready = pipe.readable() => ready?,
            };
            match self.pass_on(pipe.get_ref(), &mut buffer).await {
                Ok(0) => return Ok(StreamEnd::Closed),
                Ok(_) => {}
                // All of it has been read, or somebody woke us for nothing.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Err(error),
            }
        }
    }

    /// What a worker wrote before its end is in the pipe; what others write later is not waited
    /// for.
    async fn read_rest(
        &self,
        pipe: &AsyncFd<OwnedFd>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<StreamEnd> {
        let mut left = fds::pipe_bytes(pipe)?;
        while 0 < left {
            match self.pass_on(pipe.get_ref(), buffer).await {
                Ok(0) => return Ok(StreamEnd::Closed),
                Ok(length) => left = left.saturating_sub(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(StreamEnd::Held)
    }

    /// Waits until something may be on its way, and sends what there is of so much. Returns its
    /// length; 0 at the end of the stream.
    async fn pass_on(&self, pipe: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let grant = self.window.reserve(OUTPUT_BYTES_MAX).await;
        let room = grant.as_ref().map_or(OUTPUT_BYTES_MAX, Grant::bytes);
        let waiting = fds::waiting_bytes(pipe)?.min(room);
        let is_heard = grant.is_some();
        if is_heard && MOVED_BYTES_MIN <= waiting {
            self.spend(grant, waiting).await;
            // A link that is gone is noticed by whoever reads it.
            let _ = self.outbox.move_output(self.rank, self.stream, pipe, waiting).await;
            return Ok(waiting);
        }
        buffer.clear();
        buffer.reserve(OUTPUT_BYTES_MAX);
        let length = read(pipe, buffer, room)?;
        // A closed window is a launcher that is gone: what is read then is thrown away.
        if is_heard && 0 < length {
            self.spend(grant, length).await;
            self.outbox.send_output(self.rank, self.stream, buffer).await;
        }
        Ok(length)
    }

    /// Takes that much from the window for good. What the worker noted before goes first.
    async fn spend(&self, grant: Option<Grant<'_>>, bytes: usize) {
        if let Some(grant) = grant {
            grant.spend(bytes);
        }
        if let Some(ear) = &self.ear {
            ear.catch_up().await;
        }
    }
}

/// Reads at most `room` bytes behind what the buffer holds; no more is promised to the launcher.
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

/// Writes what comes to the standard input of a worker and says what it has taken. A worker that
/// closed its input takes everything.
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
        outbox.send_slowly(&FromAgent::StdinTaken { rank, bytes: piece.len() as u64 }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
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

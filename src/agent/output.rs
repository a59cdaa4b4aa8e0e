//! Worker output on its way to the launcher: read in pieces, tagged, never cut into lines here.
//!
//! What may be on its way is bounded by a window of bytes, which opens again as the launcher consumes
//! them; a full window leaves the rest in the worker's pipe. Nothing else waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, Notify, mpsc};

use super::window::Window;
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
        Self { writer, queue, epoch: Epoch(0) }
    }

    /// The same way in another epoch.
    pub(super) fn of(&self, epoch: Epoch) -> Self {
        Self { writer: Arc::clone(&self.writer), queue: self.queue.clone(), epoch }
    }

    /// In which all of it is said.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Says one thing, as soon as the link takes it; in the order of the calls.
    pub(super) fn send(&self, message: &FromAgent) {
        let _ = self.queue.send(wire::encode(self.epoch, message));
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
}

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
    pub(super) window: Arc<Window>,
    /// Told when the worker has ended and its stream should have.
    pub(super) let_go: Arc<Notify>,
}

impl Forward {
    /// Forwards until the stream ends.
    pub(super) async fn run(&self, pipe: OwnedFd) -> io::Result<StreamEnd> {
        let pipe = watch::watch(pipe, Interest::READABLE)?;
        let mut buffer = Vec::with_capacity(OUTPUT_BYTES_MAX);
        loop {
            let mut ready = tokio::select! {
                biased;
                () = self.let_go.notified() => return self.read_rest(&pipe, &mut buffer).await,
                ready = pipe.readable() => ready?,
            };
            let read = |buffer: &mut Vec<u8>, room| {
                ready.try_io(|pipe| read(pipe.get_ref(), buffer, room))
            };
            match self.pass_on(&mut buffer, read).await {
                Ok(Ok(0)) => return Ok(StreamEnd::Closed),
                Ok(Err(error)) => return Err(error),
                // Somebody woke us for nothing.
                Ok(Ok(_)) | Err(_) => {}
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
            let read = |buffer: &mut Vec<u8>, room| read(pipe.get_ref(), buffer, room);
            match self.pass_on(buffer, read).await {
                Ok(0) => return Ok(StreamEnd::Closed),
                Ok(length) => left = left.saturating_sub(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(StreamEnd::Held)
    }

    /// Waits until something may be on its way, reads what there is of so much, and sends it.
    async fn pass_on<T>(
        &self,
        buffer: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>, usize) -> T,
    ) -> T {
        let granted = self.window.reserve(OUTPUT_BYTES_MAX as u64).await;
        buffer.clear();
        // A closed window is a launcher that is gone: what is read then is thrown away.
        let room = granted.map_or(OUTPUT_BYTES_MAX, |granted| granted as usize);
        let result = read(buffer, room);
        if granted.is_some() {
            self.window.give_back((room - buffer.len()) as u64);
        }
        if granted.is_some() && !buffer.is_empty() {
            self.outbox.send_output(self.rank, self.stream, buffer).await;
        }
        result
    }
}

/// Appends at most `room` bytes; the buffer has that much.
fn read(pipe: &OwnedFd, buffer: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    if room == OUTPUT_BYTES_MAX {
        return Ok(rustix::io::read(pipe, rustix::buffer::spare_capacity(buffer))?);
    }
    buffer.resize(room, 0);
    let read = rustix::io::read(pipe, buffer.as_mut_slice());
    buffer.truncate(*read.as_ref().unwrap_or(&0));
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

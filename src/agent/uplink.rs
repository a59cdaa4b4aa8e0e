//! The sending side of the link to the launcher, shared by everything in the agent that sends. The
//! end of the link is detected by the event loop, which reads it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use crate::base::{Epoch, Rank};
use crate::os::tasks::Tasks;
use crate::transport::LinkWriter;
use crate::wire::{self, FromAgent, Stream};

/// The sending side of the link.
pub(super) struct Uplink {
    writer: Arc<Mutex<LinkWriter>>,
    /// Messages of the agent itself. Sending one never waits for a launcher that does not read,
    /// because the agent must go on checking the lease.
    queue: mpsc::UnboundedSender<Vec<u8>>,
}

impl Uplink {
    /// Creates the uplink and its sending task. Must be called inside a runtime.
    pub(super) fn new(writer: LinkWriter, tasks: &mut Tasks) -> Self {
        // The lease bounds it, because a launcher that does not read sends no heartbeats.
        let (queue, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
        let writer = Arc::new(Mutex::new(writer));
        let shared = Arc::clone(&writer);
        tasks.spawn(async move {
            while let Some(frame) = frames.recv().await {
                let _ = shared.lock().await.write_all(&frame, &[]).await;
            }
        });
        Self { writer, queue }
    }

    /// Queues one message, which is sent as soon as the link accepts it. Messages keep the order of
    /// the calls.
    pub(super) fn send(&self, epoch: Epoch, message: &FromAgent) {
        let _ = self.queue.send(wire::encode(epoch, message));
    }

    /// Returns the sender of a worker of this epoch.
    pub(super) fn in_epoch(&self, epoch: Epoch) -> EpochUplink {
        EpochUplink { writer: Arc::clone(&self.writer), epoch }
    }
}

/// The sender of what a worker causes: it waits until the link accepts a message, so that a worker
/// is never faster than the link.
#[derive(Clone)]
pub(super) struct EpochUplink {
    writer: Arc<Mutex<LinkWriter>>,
    /// The epoch of every message.
    epoch: Epoch,
}

impl EpochUplink {
    /// Sends one message and waits until the link has accepted it.
    pub(super) async fn send_and_wait(&self, message: &FromAgent) {
        let frame = wire::encode(self.epoch, message);
        let _ = self.writer.lock().await.write_all(&frame, &[]).await;
    }

    /// Sends output and waits until the link has accepted it.
    pub(super) async fn send_output(&self, rank: Rank, stream: Stream, bytes: &[u8]) {
        let head = wire::encode_output_head(self.epoch, rank, stream, bytes.len());
        let _ = self.writer.lock().await.write_all(&head, bytes).await;
    }

    /// Sends bytes that are in a pipe, without a copy where the link accepts pages.
    pub(super) async fn move_output(
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

/// Reads at most `room` bytes and appends them to the buffer. The window allows no more than that.
pub(super) fn read(pipe: &OwnedFd, buffer: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    let start = buffer.len();
    if room == buffer.capacity() - start {
        return Ok(rustix::io::read(pipe, rustix::buffer::spare_capacity(buffer))?);
    }
    buffer.resize(start + room, 0);
    let read = rustix::io::read(pipe, &mut buffer[start..]);
    buffer.truncate(start + read.unwrap_or(0));
    Ok(read?)
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

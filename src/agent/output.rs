//! Worker output on its way to the launcher: read in pieces, tagged, never cut into lines here.
//!
//! What may be on its way is bounded by a window of bytes that the launcher opens again as it
//! consumes them; a full window leaves the rest in the worker's pipe. Nothing else waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::sync::{Mutex, Semaphore};

use crate::base::Rank;
use crate::os::watch;
use crate::transport::LinkWriter;
use crate::wire::{self, FromAgent, OUTPUT_BYTES_MAX, Stream};

/// The way to the launcher, shared by everybody who has something to say. A launcher that is gone
/// is noticed by whoever reads the link.
pub(super) struct Outbox(Mutex<LinkWriter>);

impl Outbox {
    pub(super) fn new(writer: LinkWriter) -> Self {
        Self(Mutex::new(writer))
    }

    /// Says one thing.
    pub(super) async fn send(&self, message: &FromAgent) {
        let frame = wire::encode(message);
        let _ = self.0.lock().await.write_all(&frame, &[]).await;
    }

    async fn send_output(&self, rank: Rank, stream: Stream, bytes: &[u8]) {
        let head = wire::encode_output_head(rank, stream, bytes.len());
        let _ = self.0.lock().await.write_all(&head, bytes).await;
    }
}

/// Forwards one stream of one worker until nobody can write to it any more.
pub(super) async fn forward(
    pipe: OwnedFd,
    rank: Rank,
    stream: Stream,
    outbox: Arc<Outbox>,
    window: Arc<Semaphore>,
) -> io::Result<()> {
    let pipe = watch::watch(pipe, Interest::READABLE)?;
    let mut buffer = Vec::with_capacity(OUTPUT_BYTES_MAX);
    loop {
        let mut ready = pipe.readable().await?;
        // A closed window is a launcher that is gone: what is read then is thrown away.
        let credit = window.acquire_many(OUTPUT_BYTES_MAX as u32).await.ok();
        buffer.clear();
        let room = rustix::buffer::spare_capacity(&mut buffer);
        match ready.try_io(|pipe| Ok(rustix::io::read(pipe, room)?)) {
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(length)) => {
                if let Some(credit) = credit {
                    credit.forget();
                    window.add_permits(OUTPUT_BYTES_MAX - length);
                    outbox.send_output(rank, stream, &buffer).await;
                }
            }
            Ok(Err(error)) => return Err(error),
            // Somebody woke us for nothing; the credit goes back as it is dropped.
            Err(_) => {}
        }
    }
}

//! The receiving side of the link to the launcher.

use super::state::AgentEvent;
use crate::base::Epoch;
use crate::transport::LinkReader;
use crate::wire::{Decoder, FrameError, ToAgent};

/// Size of one read from the link.
const LINK_READ_BYTES: usize = 64 * 1024;

/// Reader of the launcher's messages.
pub(super) struct LauncherLink {
    reader: LinkReader,
    decoder: Decoder,
}

impl LauncherLink {
    pub(super) fn new(reader: LinkReader) -> Self {
        Self { reader, decoder: Decoder::default() }
    }

    /// Discards messages of epochs before this one from now on.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        self.decoder.begin_epoch(epoch);
    }

    /// Receives the next message, or the end of the link.
    pub(super) async fn next_event(&mut self) -> AgentEvent {
        match self.next().await {
            Ok(Some(message)) => {
                let epoch = self.decoder.epoch().expect("a decoded frame has an epoch");
                AgentEvent::Message { epoch, message }
            }
            Ok(None) => AgentEvent::LinkEnded,
            Err(why) => AgentEvent::ProtocolError(why.to_string()),
        }
    }

    async fn next(&mut self) -> Result<Option<ToAgent>, FrameError> {
        loop {
            if let Some(message) = self.decoder.message()? {
                return Ok(Some(message));
            }
            match self.reader.read(self.decoder.room(LINK_READ_BYTES)).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}

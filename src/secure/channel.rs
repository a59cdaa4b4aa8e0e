//! Encrypted, ordered stream of messages after a handshake.

use std::sync::Arc;

use snow::StatelessTransportState;

/// Largest plaintext of one message, in bytes.
pub const PLAINTEXT_BYTES_MAX: usize = 65_535 - TAG_BYTES;

const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 2;

/// Why a message cannot be sent or read; the connection is unusable afterwards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The plaintext is too long for one message.
    #[error("a message of {0} bytes is too long, at most {PLAINTEXT_BYTES_MAX} fit")]
    TooLong(usize),
    /// The message is not the next one that the peer sealed.
    #[error("a message was modified, repeated or reordered in transit")]
    Forged,
}

/// One end of an encrypted channel.
pub struct Channel {
    sealer: Sealer,
    opener: Opener,
}

/// Sending half of a channel.
pub struct Sealer {
    noise: Arc<StatelessTransportState>,
    /// Number of messages sealed so far.
    nonce: u64,
}

/// Receiving half of a channel.
pub struct Opener {
    noise: Arc<StatelessTransportState>,
    /// Number of messages opened so far.
    nonce: u64,
}

impl Channel {
    pub(super) fn new(noise: StatelessTransportState) -> Self {
        let noise = Arc::new(noise);
        let sealer = Sealer { noise: Arc::clone(&noise), nonce: 0 };
        Self { sealer, opener: Opener { noise, nonce: 0 } }
    }

    /// Splits the channel into its halves, for two tasks that do not wait for each other.
    pub fn split(self) -> (Sealer, Opener) {
        (self.sealer, self.opener)
    }

    /// Encrypts a message and appends it to `wire`.
    pub fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), ChannelError> {
        self.sealer.seal(plain, wire)
    }

    /// Removes the next message from the front of `wire` and decrypts it; `None`: it is incomplete.
    pub fn open(&mut self, wire: &mut Vec<u8>) -> Result<Option<Vec<u8>>, ChannelError> {
        self.opener.open(wire)
    }
}

impl Sealer {
    /// Encrypts a message and appends it to `wire`.
    pub fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), ChannelError> {
        if PLAINTEXT_BYTES_MAX < plain.len() {
            return Err(ChannelError::TooLong(plain.len()));
        }
        let sealed = plain.len() + TAG_BYTES;
        wire.extend_from_slice(&(sealed as u16).to_le_bytes());
        let start = wire.len();
        wire.resize(start + sealed, 0);
        let written = self.noise.write_message(self.nonce, plain, &mut wire[start..]);
        written.map_err(|_| ChannelError::Forged)?;
        self.nonce += 1;
        Ok(())
    }
}

impl Opener {
    /// Removes the next message from the front of `wire` and decrypts it; `None`: it is incomplete.
    pub fn open(&mut self, wire: &mut Vec<u8>) -> Result<Option<Vec<u8>>, ChannelError> {
        let Some(head) = wire.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let end = HEAD_BYTES + usize::from(u16::from_le_bytes(*head));
        let Some(sealed) = wire.get(HEAD_BYTES..end) else { return Ok(None) };
        let mut plain = vec![0; sealed.len()];
        let opened = self.noise.read_message(self.nonce, sealed, &mut plain);
        plain.truncate(opened.map_err(|_| ChannelError::Forged)?);
        self.nonce += 1;
        wire.drain(..end);
        Ok(Some(plain))
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel")
    }
}

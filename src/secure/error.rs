//! Errors of a handshake.

use crate::base::Epoch;

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The peer has another key or preamble, or bytes were modified, repeated or cut.
    #[error("handshake failed: the peer has a different key")]
    Key,
    /// The peer belongs to another epoch of the job.
    #[error("this process is in attempt {}, the peer in attempt {}", .own.attempt(), .peer.attempt())]
    Epoch {
        /// Epoch of this process.
        own: Epoch,
        /// Epoch of the peer.
        peer: Epoch,
    },
    /// The peer has the key but refused the connection.
    #[error("the peer refused the connection: {0}")]
    Refused(String),
    /// A message of the handshake cannot be decoded.
    #[error("what was received is no handshake of remuda")]
    Malformed,
}

impl From<snow::Error> for HandshakeError {
    fn from(_: snow::Error) -> Self {
        Self::Key
    }
}

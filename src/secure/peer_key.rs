//! Keys of two ranks that connect to each other.

use serde::{Deserialize, Serialize};

use crate::secure::error::HandshakeError;
use crate::secure::noise::{KK, builder};

/// Ephemeral key pair of a rank, for its data connections. The private half is never stored or
/// sent.
pub struct PeerKey {
    pub(super) private: Vec<u8>,
    public: PeerPublicKey,
}

/// Public half of a [`PeerKey`], which peers need for a handshake with that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPublicKey(pub(super) [u8; 32]);

impl PeerKey {
    /// Generates a key pair.
    pub fn generate() -> Result<Self, HandshakeError> {
        let pair = builder(KK, &[])?.generate_keypair()?;
        let public = pair.public.try_into().map_err(|_| HandshakeError::Malformed)?;
        Ok(Self { private: pair.private, public: PeerPublicKey(public) })
    }

    pub(super) fn secret(&self) -> &[u8] {
        &self.private
    }

    /// The public half.
    pub fn public(&self) -> PeerPublicKey {
        self.public
    }
}

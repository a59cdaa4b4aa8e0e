//! Handshakes: Noise NNpsk0 with a derived key, and Noise KK between ranks that know each other's
//! ephemeral key from the store.

use serde::{Deserialize, Serialize};
use snow::HandshakeState;

use crate::base::Epoch;
use crate::secure::channel::Channel;
use crate::secure::error::HandshakeError;
use crate::secure::flight::{Flight, Preamble, encode_flight};
use crate::secure::keys::RankKey;
use crate::secure::noise::{KK, MESSAGE_BYTES_MAX, NN_PSK, builder, read, write};
use crate::secure::peer_key::{PeerKey, PeerPublicKey};

/// Answer of the listener to a caller that has the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandshakeReply {
    /// The caller is accepted.
    Welcome,
    /// The caller belongs to another epoch than the listener, which is in this one.
    WrongEpoch(Epoch),
    /// A connection with the same role exists already.
    Taken,
}

/// State of the caller after its first flight.
pub struct Initiator {
    noise: HandshakeState,
    epoch: Epoch,
}

/// State of the listener after the caller has proved that it has the key.
pub struct Accepted {
    noise: HandshakeState,
    /// Epoch of the caller.
    pub epoch: Epoch,
}

/// Begins a handshake as the caller; also returns the bytes to send.
pub fn dial(
    preamble: &Preamble,
    key: &RankKey,
    epoch: Epoch,
) -> Result<(Initiator, Vec<u8>), HandshakeError> {
    let prologue = preamble.encode();
    let mut noise = builder(NN_PSK, &prologue)?.psk(0, key.bytes())?.build_initiator()?;
    let message = write(&mut noise, &epoch.0.to_le_bytes())?;
    let flight = encode_flight(&prologue, &message);
    Ok((Initiator { noise, epoch }, flight))
}

impl Initiator {
    /// Completes the handshake with the message of the listener's reply.
    pub fn finish(mut self, message: &[u8]) -> Result<Channel, HandshakeError> {
        let payload = read(&mut self.noise, message)?;
        match postcard::from_bytes(&payload).map_err(|_| HandshakeError::Malformed)? {
            HandshakeReply::Welcome => {
                Ok(Channel::new(self.noise.into_stateless_transport_mode()?))
            }
            HandshakeReply::WrongEpoch(peer) => {
                Err(HandshakeError::Epoch { own: self.epoch, peer })
            }
            HandshakeReply::Taken => {
                Err(HandshakeError::Refused("this rank is already connected".to_owned()))
            }
        }
    }
}

/// Verifies that the caller of a first flight has the key.
pub fn accept(flight: &Flight, key: &RankKey) -> Result<Accepted, HandshakeError> {
    let mut noise = builder(NN_PSK, &flight.prologue)?.psk(0, key.bytes())?.build_responder()?;
    let payload = read(&mut noise, &flight.message)?;
    let epoch = payload.try_into().map_err(|_| HandshakeError::Malformed)?;
    Ok(Accepted { noise, epoch: Epoch(u32::from_le_bytes(epoch)) })
}

impl Accepted {
    /// Completes the handshake; returns the bytes to send, and the channel if the caller is
    /// welcome.
    pub fn reply(
        mut self,
        answer: &HandshakeReply,
    ) -> Result<(Vec<u8>, Option<Channel>), HandshakeError> {
        let payload = postcard::to_allocvec(answer).expect("an enum of numbers serializes");
        let reply = encode_reply(&write(&mut self.noise, &payload)?);
        let channel = match answer {
            HandshakeReply::Welcome => {
                Some(Channel::new(self.noise.into_stateless_transport_mode()?))
            }
            HandshakeReply::WrongEpoch(_) | HandshakeReply::Taken => None,
        };
        Ok((reply, channel))
    }
}

/// State of the calling rank after its first flight.
pub struct PeerDialed(HandshakeState);

/// Result of the listening rank after the caller has proved its key.
pub struct PeerAccepted {
    /// Bytes of the reply to send.
    pub reply: Vec<u8>,
}

/// Begins a handshake between ranks as the caller; also returns the bytes to send.
pub fn dial_peer(
    preamble: &Preamble,
    own_key: &PeerKey,
    peer_key: PeerPublicKey,
) -> Result<(PeerDialed, Vec<u8>), HandshakeError> {
    let prologue = preamble.encode();
    let builder = builder(KK, &prologue)?.local_private_key(&own_key.private)?;
    let mut noise = builder.remote_public_key(&peer_key.0)?.build_initiator()?;
    let message = write(&mut noise, &[])?;
    Ok((PeerDialed(noise), encode_flight(&prologue, &message)))
}

impl PeerDialed {
    /// Completes the handshake; later bytes are plain text.
    pub fn finish(mut self, message: &[u8]) -> Result<(), HandshakeError> {
        read(&mut self.0, message).map(drop)
    }
}

/// Verifies the key of a calling rank; bytes after the reply are plain text.
pub fn accept_peer(
    flight: &Flight,
    own_key: &PeerKey,
    peer_key: PeerPublicKey,
) -> Result<PeerAccepted, HandshakeError> {
    let builder = builder(KK, &flight.prologue)?.local_private_key(&own_key.private)?;
    let mut noise = builder.remote_public_key(&peer_key.0)?.build_responder()?;
    read(&mut noise, &flight.message)?;
    Ok(PeerAccepted { reply: encode_reply(&write(&mut noise, &[])?) })
}

/// Parses a reply from the bytes received so far, into its message and its length; `None`: it is
/// incomplete.
pub fn parse_reply(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, HandshakeError> {
    let Some(head) = bytes.first_chunk::<2>() else { return Ok(None) };
    let end = 2 + usize::from(u16::from_le_bytes(*head));
    if MESSAGE_BYTES_MAX < end {
        return Err(HandshakeError::Malformed);
    }
    Ok(bytes.get(2..end).map(|message| (message.to_vec(), end)))
}

fn encode_reply(message: &[u8]) -> Vec<u8> {
    let mut reply = (message.len() as u16).to_le_bytes().to_vec();
    reply.extend_from_slice(message);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{JobId, Rank};
    use crate::secure::channel::ChannelError;
    use crate::secure::flight::{Purpose, Role, parse_flight};
    use crate::secure::keys::{JobKey, derive_rank_key};

    fn preamble(job: &str, rank: u32) -> Preamble {
        Preamble { job: JobId(job.into()), role: Role::Rank(Rank(rank), Purpose::Ask) }
    }

    fn key(secret: u8, rank: u32) -> RankKey {
        derive_rank_key(&JobKey::from_random([secret; 32]), Epoch(0), Rank(rank))
    }

    fn flight(bytes: &[u8]) -> Flight {
        parse_flight(bytes).unwrap().unwrap()
    }

    /// Runs a whole handshake, then sends one message in each direction.
    fn connect(
        own_key: &RankKey,
        peer_key: &RankKey,
        answer: &HandshakeReply,
    ) -> Result<(), HandshakeError> {
        let (dialed, first) = dial(&preamble("j", 1), own_key, Epoch(4))?;
        let accepted = accept(&flight(&first), peer_key)?;
        assert_eq!(accepted.epoch, Epoch(4));
        let (reply, channel) = accepted.reply(answer)?;
        let (message, bytes) = parse_reply(&reply)?.expect("a reply is whole");
        assert_eq!(bytes, reply.len());
        let mut caller = dialed.finish(&message)?;
        let mut called = channel.expect("welcome comes with a channel");
        let mut wire = Vec::new();
        caller.seal(b"ping", &mut wire).unwrap();
        assert_eq!(called.open(&mut wire), Ok(Some(b"ping".to_vec())));
        called.seal(b"pong", &mut wire).unwrap();
        assert_eq!(caller.open(&mut wire), Ok(Some(b"pong".to_vec())));
        Ok(())
    }

    #[test]
    fn handshake_requires_the_right_key_and_epoch() {
        let right = key(1, 1);
        assert_eq!(connect(&right, &right, &HandshakeReply::Welcome), Ok(()));
        assert_eq!(connect(&key(2, 1), &right, &HandshakeReply::Welcome), Err(HandshakeError::Key));
        assert_eq!(connect(&key(1, 2), &right, &HandshakeReply::Welcome), Err(HandshakeError::Key));
        let epochs = HandshakeError::Epoch { own: Epoch(4), peer: Epoch(5) };
        assert_eq!(connect(&right, &right, &HandshakeReply::WrongEpoch(Epoch(5))), Err(epochs));
    }

    #[test]
    fn channel_rejects_repeated_and_reordered_messages() {
        let right = key(1, 1);
        let (dialed, first) = dial(&preamble("j", 1), &right, Epoch(0)).unwrap();
        let accepted = accept(&flight(&first), &right).unwrap();
        let (reply, channel) = accepted.reply(&HandshakeReply::Welcome).unwrap();
        let (message, _) = parse_reply(&reply).unwrap().unwrap();
        let (mut sealer, _) = dialed.finish(&message).unwrap().split();
        let (_, mut opener) = channel.unwrap().split();
        let (mut one, mut two) = (Vec::new(), Vec::new());
        sealer.seal(b"one", &mut one).unwrap();
        sealer.seal(b"two", &mut two).unwrap();
        assert_eq!(opener.open(&mut two.clone()), Err(ChannelError::Forged), "out of order");
        assert_eq!(opener.open(&mut one.clone()), Ok(Some(b"one".to_vec())));
        assert_eq!(opener.open(&mut one), Err(ChannelError::Forged), "repeated");
        two[5] ^= 1;
        assert_eq!(opener.open(&mut two), Err(ChannelError::Forged), "changed");
    }

    #[test]
    fn handshake_rejects_a_changed_preamble() {
        let (_, first) = dial(&preamble("j", 1), &key(1, 1), Epoch(0)).unwrap();
        let mut changed = flight(&first);
        changed.prologue = preamble("k", 1).encode();
        assert_eq!(accept(&changed, &key(1, 1)).err(), Some(HandshakeError::Key));
    }

    #[test]
    fn peer_handshake_requires_the_published_keys() {
        let peers = Preamble {
            job: JobId("j".into()),
            role: Role::Peer { from: Rank(0), to: Rank(1), stream: 0 },
        };
        let (caller, called) = (PeerKey::generate().unwrap(), PeerKey::generate().unwrap());
        let stranger = PeerKey::generate().unwrap();
        let (dialed, first) = dial_peer(&peers, &caller, called.public()).unwrap();
        let accepted = accept_peer(&flight(&first), &called, caller.public()).unwrap();
        let (message, _) = parse_reply(&accepted.reply).unwrap().unwrap();
        assert_eq!(dialed.finish(&message), Ok(()));
        let (_, first) = dial_peer(&peers, &stranger, called.public()).unwrap();
        assert!(accept_peer(&flight(&first), &called, caller.public()).is_err());
    }
}

//! Handshakes: Noise NNpsk0 with a derived key, and Noise KK between ranks that know each other's
//! ephemeral key from the store.

use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};

use crate::base::Epoch;
use crate::secure::channel::Channel;
use crate::secure::flight::{Flight, Preamble, show_flight};
use crate::secure::keys::RankKey;

const NN_PSK: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const KK: &str = "Noise_KK_25519_ChaChaPoly_BLAKE2s";
const MESSAGE_BYTES_MAX: usize = 256;

/// Why two sides did not come together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Another key, another preamble, or bytes that were changed, repeated or cut.
    #[error("the handshake failed: the other side has another key")]
    Key,
    /// The other side belongs to another start of the job.
    #[error("we belong to epoch {ours}, the other side to epoch {theirs}")]
    Epoch {
        /// Ours.
        ours: Epoch,
        /// Theirs.
        theirs: Epoch,
    },
    /// The other side has had enough of us.
    #[error("the other side refused: {0}")]
    Refused(String),
    /// A message of the handshake that means nothing.
    #[error("a message of the handshake is malformed")]
    Malformed,
}

impl From<snow::Error> for HandshakeError {
    fn from(_: snow::Error) -> Self {
        Self::Key
    }
}

/// What the called side says to one that has the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Come in.
    Welcome,
    /// The peer belongs to another epoch of the job.
    WrongEpoch(Epoch),
    /// Another peer has already connected with this identity.
    Taken,
}

/// The calling side, its first flight sent.
pub struct Dialed {
    noise: HandshakeState,
    epoch: Epoch,
}

/// The called side, the key proved.
pub struct Accepted {
    noise: HandshakeState,
    /// To which start of the job the caller belongs.
    pub epoch: Epoch,
}

/// Begins a handshake: the bytes to send.
pub fn dial(
    preamble: &Preamble,
    key: &RankKey,
    epoch: Epoch,
) -> Result<(Dialed, Vec<u8>), HandshakeError> {
    let prologue = preamble.encode();
    let mut noise = builder(NN_PSK, &prologue)?.psk(0, key.bytes())?.build_initiator()?;
    let message = write(&mut noise, &epoch.0.to_le_bytes())?;
    let flight = show_flight(&prologue, &message);
    Ok((Dialed { noise, epoch }, flight))
}

impl Dialed {
    /// Ends the handshake with the message of a reply.
    pub fn finish(mut self, message: &[u8]) -> Result<Channel, HandshakeError> {
        let payload = read(&mut self.noise, message)?;
        match postcard::from_bytes(&payload).map_err(|_| HandshakeError::Malformed)? {
            Answer::Welcome => Ok(Channel::new(self.noise.into_stateless_transport_mode()?)),
            Answer::WrongEpoch(theirs) => Err(HandshakeError::Epoch { ours: self.epoch, theirs }),
            Answer::Taken => {
                Err(HandshakeError::Refused("this rank is connected already".to_owned()))
            }
        }
    }
}

/// Checks the key of a caller.
pub fn accept(flight: &Flight, key: &RankKey) -> Result<Accepted, HandshakeError> {
    let mut noise = builder(NN_PSK, &flight.prologue)?.psk(0, key.bytes())?.build_responder()?;
    let payload = read(&mut noise, &flight.message)?;
    let epoch = payload.try_into().map_err(|_| HandshakeError::Malformed)?;
    Ok(Accepted { noise, epoch: Epoch(u32::from_le_bytes(epoch)) })
}

impl Accepted {
    /// Ends the handshake: the bytes to send, and the channel, unless the answer is a refusal.
    pub fn reply(mut self, answer: &Answer) -> Result<(Vec<u8>, Option<Channel>), HandshakeError> {
        let payload = postcard::to_allocvec(answer).expect("an enum of numbers serializes");
        let reply = show_reply(&write(&mut self.noise, &payload)?);
        let channel = match answer {
            Answer::Welcome => Some(Channel::new(self.noise.into_stateless_transport_mode()?)),
            Answer::WrongEpoch(_) | Answer::Taken => None,
        };
        Ok((reply, channel))
    }
}

/// The ephemeral key of a rank, for its data connections. Never stored, never sent.
pub struct PeerKey {
    private: Vec<u8>,
    public: PeerPublicKey,
}

/// What peers must know to call a rank, or to be called by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPublicKey([u8; 32]);

impl PeerKey {
    /// A new key.
    pub fn generate() -> Result<Self, HandshakeError> {
        let pair = builder(KK, &[])?.generate_keypair()?;
        let public = pair.public.try_into().map_err(|_| HandshakeError::Malformed)?;
        Ok(Self { private: pair.private, public: PeerPublicKey(public) })
    }

    pub(super) fn secret(&self) -> &[u8] {
        &self.private
    }

    /// The half that is published.
    pub fn public(&self) -> PeerPublicKey {
        self.public
    }
}

/// The calling rank, its first flight sent.
pub struct PeerDialed(HandshakeState);

/// The called rank, the caller's key proved; what to send to the caller.
pub struct PeerAccepted {
    /// The bytes of the reply.
    pub reply: Vec<u8>,
}

/// Begins a handshake between ranks: the bytes to send.
pub fn dial_peer(
    preamble: &Preamble,
    ours: &PeerKey,
    theirs: PeerPublicKey,
) -> Result<(PeerDialed, Vec<u8>), HandshakeError> {
    let prologue = preamble.encode();
    let builder = builder(KK, &prologue)?.local_private_key(&ours.private)?;
    let mut noise = builder.remote_public_key(&theirs.0)?.build_initiator()?;
    let message = write(&mut noise, &[])?;
    Ok((PeerDialed(noise), show_flight(&prologue, &message)))
}

impl PeerDialed {
    /// Ends the handshake; what follows is plain.
    pub fn finish(mut self, message: &[u8]) -> Result<(), HandshakeError> {
        read(&mut self.0, message).map(drop)
    }
}

/// Checks the key of a calling rank; what follows the reply is plain.
pub fn accept_peer(
    flight: &Flight,
    ours: &PeerKey,
    theirs: PeerPublicKey,
) -> Result<PeerAccepted, HandshakeError> {
    let builder = builder(KK, &flight.prologue)?.local_private_key(&ours.private)?;
    let mut noise = builder.remote_public_key(&theirs.0)?.build_responder()?;
    read(&mut noise, &flight.message)?;
    Ok(PeerAccepted { reply: show_reply(&write(&mut noise, &[])?) })
}

/// Reads a reply from the bytes that have arrived: its message and the bytes that it took; `None`:
/// more must come.
pub fn parse_reply(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, HandshakeError> {
    let Some(head) = bytes.first_chunk::<2>() else { return Ok(None) };
    let end = 2 + usize::from(u16::from_le_bytes(*head));
    if MESSAGE_BYTES_MAX < end {
        return Err(HandshakeError::Malformed);
    }
    Ok(bytes.get(2..end).map(|message| (message.to_vec(), end)))
}

fn show_reply(message: &[u8]) -> Vec<u8> {
    let mut reply = (message.len() as u16).to_le_bytes().to_vec();
    reply.extend_from_slice(message);
    reply
}

fn builder<'a>(pattern: &str, prologue: &'a [u8]) -> Result<Builder<'a>, HandshakeError> {
    let params = pattern.parse().expect("the pattern is a constant that snow knows");
    Ok(Builder::new(params).prologue(prologue)?)
}

fn write(noise: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    let bytes = noise.write_message(payload, &mut message)?;
    message.truncate(bytes);
    Ok(message)
}

fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut payload = vec![0; MESSAGE_BYTES_MAX];
    let bytes = noise.read_message(message, &mut payload)?;
    payload.truncate(bytes);
    Ok(payload)
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

    /// A whole handshake, then one message each way.
    fn connect(ours: &RankKey, theirs: &RankKey, answer: &Answer) -> Result<(), HandshakeError> {
        let (dialed, first) = dial(&preamble("j", 1), ours, Epoch(4))?;
        let accepted = accept(&flight(&first), theirs)?;
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
    fn only_the_right_key_and_epoch_come_in() {
        let right = key(1, 1);
        assert_eq!(connect(&right, &right, &Answer::Welcome), Ok(()));
        assert_eq!(connect(&key(2, 1), &right, &Answer::Welcome), Err(HandshakeError::Key));
        assert_eq!(connect(&key(1, 2), &right, &Answer::Welcome), Err(HandshakeError::Key));
        let epochs = HandshakeError::Epoch { ours: Epoch(4), theirs: Epoch(5) };
        assert_eq!(connect(&right, &right, &Answer::WrongEpoch(Epoch(5))), Err(epochs));
    }

    #[test]
    fn a_message_that_is_repeated_or_out_of_order_is_forged() {
        let right = key(1, 1);
        let (dialed, first) = dial(&preamble("j", 1), &right, Epoch(0)).unwrap();
        let accepted = accept(&flight(&first), &right).unwrap();
        let (reply, channel) = accepted.reply(&Answer::Welcome).unwrap();
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
    fn a_changed_preamble_fails() {
        let (_, first) = dial(&preamble("j", 1), &key(1, 1), Epoch(0)).unwrap();
        let mut changed = flight(&first);
        changed.prologue = preamble("k", 1).encode();
        assert_eq!(accept(&changed, &key(1, 1)).err(), Some(HandshakeError::Key));
    }

    #[test]
    fn ranks_know_each_other_by_their_published_keys() {
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

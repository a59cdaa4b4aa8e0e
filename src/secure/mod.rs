//! Keys and handshakes, as functions from bytes to bytes without sockets or clock (layer L1).
//!
//! Every listener of remuda requires the same first flight:
//!
//! ```text
//! magic (6) | version (2) | preamble bytes (2) | message bytes (2) | preamble | Noise message
//! ```
//!
//! in at most [`FIRST_FLIGHT_BYTES_MAX`]. The preamble in clear text identifies the caller, so that
//! the listener can find the right key, and is the prologue of the handshake, so that it cannot be
//! modified in transit. A caller without the key receives no answer, only a closed connection.

mod channel;
mod error;
mod flight;
mod handshake;
mod keys;
mod noise;
mod peer_key;

pub use channel::{Channel, ChannelError, Opener, PLAINTEXT_BYTES_MAX, Sealer};
pub use error::HandshakeError;
pub use flight::{
    FIRST_FLIGHT_BYTES_MAX, Flight, FlightError, Preamble, Purpose, Role, VERSION, parse_flight,
};
pub use handshake::Accepted;
pub use handshake::HandshakeReply;
pub use handshake::Initiator;
pub use handshake::PeerAccepted;
pub use handshake::PeerDialed;
pub use handshake::accept;
pub use handshake::accept_peer;
pub use handshake::dial;
pub use handshake::dial_peer;
pub use handshake::parse_reply;
pub use keys::{
    JobKey, KEY_FILE_BYTES_MAX, KEY_FILE_BYTES_MIN, KeyError, RankKey, derive_agent_key,
    derive_job_id, derive_newcomer_key, derive_rank_key,
};
pub use peer_key::PeerKey;
pub use peer_key::PeerPublicKey;

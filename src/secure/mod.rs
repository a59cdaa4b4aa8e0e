//! Noise handshakes and keys as state machines: bytes in, bytes out, no sockets, no clock (layer L1).
//!
//! Every listener of remuda expects the same first message:
//!
//! ```text
//! magic (6) | version (2) | preamble bytes (2) | message bytes (2) | preamble | Noise message
//! ```
//!
//! in at most [`FIRST_FLIGHT_BYTES_MAX`]. The clear preamble says who calls, so that the right key
//! can be found, and is the prologue of the handshake, so that it cannot be changed on the way. Who
//! has no key gets no answer, only a closed connection.

mod channel;
mod flight;
mod handshake;
mod keys;

pub use channel::{Channel, ChannelError, Opener, PLAINTEXT_BYTES_MAX, Sealer};
pub use flight::{
    FIRST_FLIGHT_BYTES_MAX, Flight, FlightError, Preamble, Purpose, Role, VERSION, parse_flight,
};
pub use handshake::{
    Accepted, Answer, Dialed, HandshakeError, PeerAccepted, PeerDialed, PeerKey, PeerPublicKey,
    accept, accept_peer, dial, dial_peer, parse_reply,
};
pub use keys::{
    JobKey, KEY_FILE_BYTES_MAX, KEY_FILE_BYTES_MIN, KeyError, RankKey, derive_agent_key,
    derive_job_id, derive_rank_key,
};

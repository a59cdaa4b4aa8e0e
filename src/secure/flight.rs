//! First flight: the first bytes of every connection, parsed before the peer is authenticated.

use serde::{Deserialize, Serialize};

use crate::base::{JobId, NodeRank, Rank};

/// Version of the handshake.
pub const VERSION: u16 = 1;
/// Largest first flight in bytes; an unauthenticated peer can occupy no more memory.
pub const FIRST_FLIGHT_BYTES_MAX: usize = 256;

const MAGIC: &[u8; 6] = b"remuda";
const HEAD_BYTES: usize = 12;

/// Identity that the caller claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The agent of a node, which connects to node 0.
    Agent(NodeRank),
    /// A worker, which connects to the store.
    Rank(Rank, Purpose),
    /// A worker, which connects to another worker.
    Peer {
        /// Rank of the caller.
        from: Rank,
        /// Rank of the listener.
        to: Rank,
        /// Index of the connection among those between the two.
        stream: u8,
    },
    /// The agent of a node without a number; node 0 gives it one.
    Newcomer,
}

/// Purpose of a worker's connection to the store; a worker has one connection of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// Requests and responses.
    Ask,
    /// Notification of failures while the other connection is in use.
    Watch,
}

/// Part of the first flight in clear text, which becomes the prologue of the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preamble {
    /// Job of the caller.
    pub job: JobId,
    /// Identity that the caller claims.
    pub role: Role,
}

/// A complete first flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Identity and job of the caller.
    pub preamble: Preamble,
    /// The bytes of the preamble, as the prologue of the handshake.
    pub prologue: Vec<u8>,
    /// The first Noise message.
    pub message: Vec<u8>,
    /// Length of the flight in the input.
    pub bytes: usize,
}

/// Why the first bytes are not a first flight.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlightError {
    /// The peer uses another protocol.
    #[error("not the remuda protocol (looks like {0})")]
    Foreign(&'static str),
    /// The peer is another release of remuda.
    #[error("the peer uses protocol version {0}, this remuda uses version {VERSION}")]
    Version(u16),
    /// The flight is longer than an unauthenticated peer may send.
    #[error("the first message has {0} bytes, at most {FIRST_FLIGHT_BYTES_MAX} are read")]
    TooLong(usize),
    /// The preamble cannot be decoded.
    #[error("the preamble is malformed")]
    Malformed,
}

impl Preamble {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("ids and numbers always serialize")
    }
}

/// Encodes a first flight.
pub(super) fn encode_flight(prologue: &[u8], message: &[u8]) -> Vec<u8> {
    let mut flight = Vec::with_capacity(HEAD_BYTES + prologue.len() + message.len());
    flight.extend_from_slice(MAGIC);
    flight.extend_from_slice(&VERSION.to_le_bytes());
    flight.extend_from_slice(&(prologue.len() as u16).to_le_bytes());
    flight.extend_from_slice(&(message.len() as u16).to_le_bytes());
    flight.extend_from_slice(prologue);
    flight.extend_from_slice(message);
    flight
}

/// Parses a first flight from the bytes received so far; `None`: it is incomplete.
pub fn parse_flight(bytes: &[u8]) -> Result<Option<Flight>, FlightError> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(FlightError::Foreign(guess_protocol(bytes)));
    }
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let field = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if field(6) != VERSION {
        return Err(FlightError::Version(field(6)));
    }
    let preamble_end = HEAD_BYTES + usize::from(field(8));
    let end = preamble_end + usize::from(field(10));
    if FIRST_FLIGHT_BYTES_MAX < end {
        return Err(FlightError::TooLong(end));
    }
    let Some(flight) = bytes.get(..end) else { return Ok(None) };
    let prologue = flight[HEAD_BYTES..preamble_end].to_vec();
    let (preamble, rest) =
        postcard::take_from_bytes(&prologue).map_err(|_| FlightError::Malformed)?;
    if !rest.is_empty() {
        return Err(FlightError::Malformed);
    }
    let message = flight[preamble_end..].to_vec();
    Ok(Some(Flight { preamble, prologue, message, bytes: end }))
}

/// Guesses the protocol of an unknown peer, for the one line that is logged.
fn guess_protocol(bytes: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 7] = [
        (b"\0\xce\xf7\x85\x3c", "torchrun's own, which `remuda torchrun` replaces on every node"),
        (b"GET ", "HTTP"),
        (b"POST ", "HTTP"),
        (b"HEAD ", "HTTP"),
        (b"PRI * HTTP/2", "HTTP/2"),
        (b"\x16\x03", "TLS"),
        (b"SSH-", "ssh"),
    ];
    let known = KNOWN.iter().find(|(start, _)| bytes.starts_with(start));
    known.map_or("something else", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn preamble() -> Preamble {
        Preamble { job: JobId("j1".into()), role: Role::Rank(Rank(3), Purpose::Ask) }
    }

    #[track_caller]
    fn check(bytes: &[u8], expect: &str) {
        let found = match parse_flight(bytes) {
            Ok(None) => "more".to_owned(),
            Ok(Some(flight)) => format!("{:?} {:?}", flight.preamble.role, flight.message),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn first_flight_names_foreign_protocols() {
        check(b"GET / HTTP/1.1\r\n", "not the remuda protocol (looks like HTTP)");
        check(b"\x16\x03\x01\x02\x00", "not the remuda protocol (looks like TLS)");
        check(b"SSH-2.0-OpenSSH_9.2", "not the remuda protocol (looks like ssh)");
        let torchrun = "torchrun's own, which `remuda torchrun` replaces on every node";
        check(b"\0\xce\xf7\x85<", &format!("not the remuda protocol (looks like {torchrun})"));
        check(b"\0\0\0\0", "not the remuda protocol (looks like something else)");
        let other = "the peer uses protocol version 99, this remuda uses version 1";
        check(b"remuda\x63\x00\0\0\0\0", other);
        check(
            b"remuda\x01\x00\xff\xff\xff\xff",
            "the first message has 131082 bytes, at most 256 are read",
        );
        check(b"remuda\x01\x00\x01\x00\x00\x00\xff", "the preamble is malformed");
    }

    #[test]
    fn first_flight_matches_golden_bytes_of_version_1() {
        let flight = encode_flight(&preamble().encode(), &[1, 2, 3]);
        assert_eq!(flight, b"remuda\x01\x00\x06\x00\x03\x00\x02j1\x01\x03\x00\x01\x02\x03");
        let roles = [
            (Role::Agent(NodeRank(300)), &[0, 0xac, 2][..]),
            (Role::Rank(Rank(1), Purpose::Watch), &[1, 1, 1]),
            (Role::Peer { from: Rank(1), to: Rank(2), stream: 3 }, &[2, 1, 2, 3]),
            (Role::Newcomer, &[3]),
        ];
        for (role, bytes) in roles {
            let preamble = Preamble { job: JobId(String::new()), role };
            assert_eq!(preamble.encode()[1..], *bytes, "{role:?}");
        }
    }

    #[test]
    fn first_flight_is_parsed_byte_by_byte() {
        let flight = encode_flight(&preamble().encode(), &[1, 2, 3]);
        for end in 0..flight.len() {
            check(&flight[..end], "more");
        }
        check(&flight, "Rank(Rank(3), Ask) [1, 2, 3]");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn first_flight_never_panics(
            tail in proptest::collection::vec(any::<u8>(), 0..400),
            is_own: bool,
        ) {
            let mut bytes = if is_own { b"remuda\x01\x00".to_vec() } else { Vec::new() };
            bytes.extend(tail);
            if let Ok(Some(flight)) = parse_flight(&bytes) {
                prop_assert!(flight.bytes <= FIRST_FLIGHT_BYTES_MAX);
            }
        }
    }
}

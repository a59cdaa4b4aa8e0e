//! The first bytes of every connection of ours, parsed before anybody is trusted.

use serde::{Deserialize, Serialize};

use crate::base::{JobId, NodeRank, Rank};

/// Version of the handshake.
pub const VERSION: u16 = 1;
/// Largest number of bytes that are buffered for an unauthenticated peer.
pub const FIRST_FLIGHT_BYTES_MAX: usize = 256;

const MAGIC: &[u8; 6] = b"remuda";
const HEAD_BYTES: usize = 12;

/// Role of the peer that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The agent of a node, to node 0.
    Agent(NodeRank),
    /// A worker, to the store.
    Rank(Rank, Purpose),
    /// A worker, to a worker.
    Peer {
        /// Role of the peer that connects.
        from: Rank,
        /// Who is called.
        to: Rank,
        /// Which of the connections between the two.
        stream: u8,
    },
}

/// What a worker's connection to the store is for; one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// Questions and answers.
    Ask,
    /// Waits for bad news while the other one is used.
    Watch,
}

/// What is said in clear, and becomes the prologue of the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preamble {
    /// Job.
    pub job: JobId,
    /// Role of the peer that connects.
    pub role: Role,
}

/// A complete first flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Who calls, for which job.
    pub preamble: Preamble,
    /// The bytes of the preamble, as the prologue.
    pub prologue: Vec<u8>,
    /// The first Noise message.
    pub message: Vec<u8>,
    /// Bytes of the input that it took.
    pub bytes: usize,
}

/// Why the first bytes are none of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlightError {
    /// Something else speaks.
    #[error("not our protocol (looks like {0})")]
    Foreign(&'static str),
    /// Another release.
    #[error("the peer speaks protocol {0}, we speak {VERSION}")]
    Version(u16),
    /// More than an unknown may send.
    #[error("the first message has {0} bytes, at most {FIRST_FLIGHT_BYTES_MAX} are read")]
    TooLong(usize),
    /// The preamble means nothing.
    #[error("the preamble is malformed")]
    Malformed,
}

impl Preamble {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("ids and numbers always serialize")
    }
}

/// Lays out a first flight.
pub(super) fn show_flight(prologue: &[u8], message: &[u8]) -> Vec<u8> {
    let mut flight = Vec::with_capacity(HEAD_BYTES + prologue.len() + message.len());
    flight.extend_from_slice(MAGIC);
    flight.extend_from_slice(&VERSION.to_le_bytes());
    flight.extend_from_slice(&(prologue.len() as u16).to_le_bytes());
    flight.extend_from_slice(&(message.len() as u16).to_le_bytes());
    flight.extend_from_slice(prologue);
    flight.extend_from_slice(message);
    flight
}

/// Reads a first flight from the bytes that have arrived; `None`: more must come.
pub fn parse_flight(bytes: &[u8]) -> Result<Option<Flight>, FlightError> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(FlightError::Foreign(guess(bytes)));
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

/// What a stranger seems to speak, for the one line that is logged.
fn guess(bytes: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 6] = [
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
    fn strangers_are_recognised() {
        check(b"GET / HTTP/1.1\r\n", "not our protocol (looks like HTTP)");
        check(b"\x16\x03\x01\x02\x00", "not our protocol (looks like TLS)");
        check(b"SSH-2.0-OpenSSH_9.2", "not our protocol (looks like ssh)");
        check(b"\0\0\0\0", "not our protocol (looks like something else)");
        check(b"remuda\x63\x00\0\0\0\0", "the peer speaks protocol 99, we speak 1");
        check(
            b"remuda\x01\x00\xff\xff\xff\xff",
            "the first message has 131082 bytes, at most 256 are read",
        );
        check(b"remuda\x01\x00\x01\x00\x00\x00\xff", "the preamble is malformed");
    }

    #[test]
    fn a_flight_arrives_byte_by_byte() {
        let flight = show_flight(&preamble().encode(), &[1, 2, 3]);
        for end in 0..flight.len() {
            check(&flight[..end], "more");
        }
        check(&flight, "Rank(Rank(3), Ask) [1, 2, 3]");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_bytes_panic(tail in proptest::collection::vec(any::<u8>(), 0..400), ours: bool) {
            let mut bytes = if ours { b"remuda\x01\x00".to_vec() } else { Vec::new() };
            bytes.extend(tail);
            if let Ok(Some(flight)) = parse_flight(&bytes) {
                prop_assert!(flight.bytes <= FIRST_FLIGHT_BYTES_MAX);
            }
        }
    }
}

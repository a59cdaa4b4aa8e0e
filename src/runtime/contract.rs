//! The protocol between an agent and its workers, independent of the launcher.
//!
//! * [`REMUDA_RANK_FD`](crate::base::env_vars::REMUDA_RANK_FD): a stream socket to the agent. The
//!   agent's first message is a [`Welcome`]; [`ToWorker::PeerGone`] and [`ToWorker::PeerEnded`] can
//!   follow at any time. The worker sends [`Note`]s, or nothing.
//! * [`REMUDA_SHM_FD`](crate::base::env_vars::REMUDA_SHM_FD): the shared memory segment of the node, one
//!   for each epoch, created by [`create_segment`].
//!
//! A message is a frame: length (4 bytes, little endian), version (1 byte), postcard. A program can
//! ignore both descriptors.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::base::Note;
use crate::base::{Epoch, JobId, Rank};
use crate::runtime::comm::shm::error::SegmentError;
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::schedule::Placement;
use crate::secure::RankKey;

/// Version of the messages.
pub const VERSION: u8 = 3;
/// Largest message from the agent in bytes: the welcome of the largest job.
pub const TO_WORKER_BYTES_MAX: usize = 16 << 20;
/// Largest note in bytes.
pub const NOTE_BYTES_MAX: usize = 4096;

const HEADER_BYTES: usize = 5;

/// Message from the agent to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Identity of the worker; sent once, as the first message.
    Welcome(Box<Welcome>),
    /// A worker of the job has failed. Running operations fail immediately instead of at their
    /// deadline.
    PeerGone {
        /// Rank of the worker.
        rank: Rank,
    },
    /// A worker of this node has exited with 0. Operations that still need it fail immediately instead
    /// of at their deadline; other operations continue.
    PeerEnded {
        /// Rank of the worker.
        rank: Rank,
    },
}

/// Identity of a worker and addresses of the other workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Identifier of the job.
    pub job: JobId,
    /// Number of this start of the job; it grows with every restart.
    pub epoch: Epoch,
    /// Rank of this worker in the job.
    pub rank: Rank,
    /// All nodes of the job, in node order.
    pub nodes: Vec<NodeRanks>,
    /// Key with which this rank authenticates to the store.
    pub key: RankKey,
    /// Address of the store; `None` if the job has one node.
    pub store: Option<SocketAddr>,
}

/// Workers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRanks {
    /// Name of the host in the hostfile.
    pub host: String,
    /// Ranks of the node's workers in the order of their local ranks, ascending.
    pub ranks: Vec<Rank>,
}

/// Error of reading a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// The peer uses a different version.
    #[error("the peer uses contract version {0}, this program uses version {VERSION}")]
    Version(u8),
    /// The message is too long.
    #[error("a message of {bytes} bytes exceeds the limit of {bytes_max} bytes")]
    TooLong {
        /// Announced length in bytes.
        bytes: usize,
        /// Largest allowed length in bytes.
        bytes_max: usize,
    },
    /// The bytes are not a valid message.
    #[error("malformed message")]
    Malformed,
    /// The first message was not a welcome.
    #[error("the first message is not a welcome")]
    NoWelcome,
    /// The welcome contradicts itself or the segment.
    #[error("invalid welcome: {0}")]
    InvalidWelcome(&'static str),
}

impl Welcome {
    /// Returns the node of every rank. Fails unless the ranks are dense and each is on exactly one node.
    pub fn placement(&self) -> Result<Placement, ContractError> {
        let world: usize = self.nodes.iter().map(|node| node.ranks.len()).sum();
        let mut node_of = vec![None; world];
        for (node, ranks) in self.nodes.iter().enumerate() {
            if !ranks.ranks.is_sorted() {
                return Err(ContractError::InvalidWelcome("ranks of a node are not ascending"));
            }
            for rank in &ranks.ranks {
                let entry = node_of.get_mut(rank.index());
                match entry {
                    Some(entry @ None) => *entry = Some(node),
                    _ => return Err(ContractError::InvalidWelcome("ranks are not dense")),
                }
            }
        }
        let node_of = node_of.into_iter().flatten().collect();
        let hosts = self.nodes.iter().map(|node| node.host.clone()).collect();
        let placement = Placement::new(hosts, node_of)
            .ok_or(ContractError::InvalidWelcome("a node has no worker"))?;
        if self.rank.index() < world {
            Ok(placement)
        } else {
            Err(ContractError::InvalidWelcome("the rank is not in the job"))
        }
    }
}

/// Creates the shared memory segment for the `local_world` workers of a node; one for each epoch. The
/// descriptor is close-on-exec.
pub fn create_segment(local_world: usize) -> Result<OwnedFd, SegmentError> {
    Segment::create(local_world)
}

/// Creates the two ends of a rank socket, the agent's first; both are close-on-exec.
pub fn create_rank_socket() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Encodes a message, a [`ToWorker`] or a [`Note`], as a frame.
pub fn encode_frame<M: Serialize>(message: &M) -> Vec<u8> {
    let body = postcard::to_allocvec(message).expect("texts and numbers serialize");
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.push(VERSION);
    frame.extend_from_slice(&body);
    frame
}

/// Decoder that splits a stream of bytes into messages of one kind.
#[derive(Debug)]
pub struct FrameReader {
    received: Vec<u8>,
    bytes_max: usize,
}

impl FrameReader {
    /// Creates a reader for messages of an agent.
    pub fn from_agent() -> Self {
        Self { received: Vec::new(), bytes_max: TO_WORKER_BYTES_MAX }
    }

    /// Creates a reader for messages of a worker.
    pub fn from_worker() -> Self {
        Self { received: Vec::new(), bytes_max: NOTE_BYTES_MAX }
    }

    /// Adds bytes that were received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Returns the next message, or `None` if more bytes are needed. After an error the stream is unusable.
    #[expect(clippy::should_implement_trait, reason = "the caller names the kind of message")]
    pub fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, ContractError> {
        let Some(head) = self.received.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [a, b, c, d, version] = *head;
        if version != VERSION {
            return Err(ContractError::Version(version));
        }
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        if self.bytes_max < bytes {
            return Err(ContractError::TooLong { bytes, bytes_max: self.bytes_max });
        }
        let end = HEADER_BYTES + bytes;
        let Some(body) = self.received.get(HEADER_BYTES..end) else { return Ok(None) };
        let Ok((message, [])) = postcard::take_from_bytes(body) else {
            return Err(ContractError::Malformed);
        };
        self.received.drain(..end);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::{JobKey, derive_rank_key};
    use proptest::prelude::*;

    fn welcome(nodes: &[&[u32]], rank: u32) -> Welcome {
        let node = |(index, ranks): (usize, &&[u32])| NodeRanks {
            host: format!("n{index}"),
            ranks: ranks.iter().copied().map(Rank).collect(),
        };
        Welcome {
            job: JobId("j".into()),
            epoch: Epoch(2),
            rank: Rank(rank),
            nodes: nodes.iter().enumerate().map(node).collect(),
            key: derive_rank_key(&JobKey::from_random([1; 32]), Epoch(2), Rank(rank)),
            store: Some("127.0.0.1:9".parse().unwrap()),
        }
    }

    #[track_caller]
    fn check_placement(nodes: &[&[u32]], rank: u32, expect: &str) {
        let found = match welcome(nodes, rank).placement() {
            Ok(placement) => format!("{:?}", placement.node_of_all()),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn welcome_contains_the_placement_of_all_ranks() {
        check_placement(&[&[0, 1], &[2]], 2, "[0, 0, 1]");
        check_placement(&[&[0, 2], &[1]], 0, "[0, 1, 0]");
        check_placement(&[&[0, 1], &[1]], 0, "invalid welcome: ranks are not dense");
        check_placement(&[&[0, 3]], 0, "invalid welcome: ranks are not dense");
        check_placement(&[&[1, 0]], 0, "invalid welcome: ranks of a node are not ascending");
        check_placement(&[&[0], &[]], 0, "invalid welcome: a node has no worker");
        check_placement(&[&[0]], 1, "invalid welcome: the rank is not in the job");
    }

    #[test]
    fn frame_reader_joins_messages_in_any_pieces() {
        let messages = [
            ToWorker::Welcome(Box::new(welcome(&[&[0, 1], &[2]], 1))),
            ToWorker::PeerGone { rank: Rank(2) },
        ];
        let bytes: Vec<u8> = messages.iter().flat_map(encode_frame).collect();
        for piece in 1..bytes.len() {
            let mut reader = FrameReader::from_agent();
            let mut found = Vec::new();
            for piece in bytes.chunks(piece) {
                reader.push(piece);
                while let Some(message) = reader.next::<ToWorker>().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, messages);
        }
    }

    #[test]
    fn messages_match_golden_bytes_of_version_3() {
        let frame = encode_frame(&Note::PeerLost { rank: Rank(300) });
        assert_eq!(frame, [3, 0, 0, 0, 3, 2, 0xac, 2]);
        let frame = encode_frame(&ToWorker::PeerGone { rank: Rank(1) });
        assert_eq!(frame, [2, 0, 0, 0, 3, 1, 1]);
        let frame = encode_frame(&ToWorker::PeerEnded { rank: Rank(1) });
        assert_eq!(frame, [2, 0, 0, 0, 3, 2, 1]);
        let frame = encode_frame(&Note::gave_up("no"));
        assert_eq!(frame, [4, 0, 0, 0, 3, 3, 2, b'n', b'o']);
        // The Python package writes these without the C library.
        let (steps, loss) = (Some(2), Some(0.5));
        let step = Note::Step { step: 300, steps, loss, tokens_per_s: None };
        let frame = encode_frame(&step);
        let expect = [15, 0, 0, 0, 3, 1, 0xac, 2, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 0];
        assert_eq!(frame, expect);
        let frame = encode_frame(&Note::phase(Some("no")));
        assert_eq!(frame, [5, 0, 0, 0, 3, 4, 1, 2, b'n', b'o']);
        let frame = encode_frame(&Note::phase(None));
        assert_eq!(frame, [2, 0, 0, 0, 3, 4, 0]);
        let frame = encode_frame(&Note::failed("no"));
        assert_eq!(frame, [4, 0, 0, 0, 3, 5, 2, b'n', b'o']);
    }

    #[track_caller]
    fn check_bytes(bytes: &[u8], expect: &str) {
        let mut reader = FrameReader::from_worker();
        reader.push(bytes);
        let found = match reader.next::<Note>() {
            Ok(note) => format!("{note:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn frame_reader_rejects_invalid_lengths() {
        check_bytes(&[0xff, 0xff, 0xff, 0xff], "None");
        check_bytes(
            &[0xff, 0xff, 0xff, 0xff, 3],
            "a message of 4294967295 bytes exceeds the limit of 4096 bytes",
        );
        let version = "the peer uses contract version 99, this program uses version 3";
        check_bytes(&[1, 0, 0, 0, 99, 0], version);
        check_bytes(&[0, 0, 0, 0, 3], "malformed message");
        check_bytes(&[2, 0, 0, 0, 3, 0, 0], "malformed message");
        check_bytes(&[1, 0, 0, 0, 3, 0], "Some(Ready)");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frame_reader_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut reader = FrameReader::from_agent();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next::<ToWorker>() {}
        }
    }
}

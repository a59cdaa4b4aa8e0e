//! What a worker is given, whatever launched it: the contract between an agent and its workers.
//!
//! * [`REMUDA_RANK_FD`](crate::base::env_vars::REMUDA_RANK_FD): a stream socket to the agent. The
//!   agent's first message is a [`Welcome`]; [`ToWorker::PeerGone`] and [`ToWorker::PeerEnded`] may
//!   follow at any time. The worker writes [`Note`]s, or nothing.
//! * [`REMUDA_SHM_FD`](crate::base::env_vars::REMUDA_SHM_FD): the segment of the node, one per epoch,
//!   made by [`create_segment`].
//!
//! Messages are frames: length (4 bytes, little endian), version (1 byte), postcard. A program may
//! ignore both descriptors.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::{Epoch, JobId, Rank};
use crate::runtime::schedule::Placement;
use crate::runtime::shm::{Segment, SegmentError};
use crate::secure::RankKey;

/// Version of the messages.
pub const VERSION: u8 = 2;
/// Longest message from the agent: a welcome to the largest job.
pub const TO_WORKER_BYTES_MAX: usize = 16 << 20;
/// Longest note.
pub const NOTE_BYTES_MAX: usize = 4096;

const HEAD_BYTES: usize = 5;

/// What the agent tells a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Who you are; once, first.
    Welcome(Box<Welcome>),
    /// A worker of the job has failed. Operations that are under way fail at once instead of at
    /// their deadline.
    PeerGone {
        /// Which.
        rank: Rank,
    },
    /// A worker of this node has ended well. Operations that still need it fail at once instead of
    /// at their deadline; the others go on.
    PeerEnded {
        /// Which.
        rank: Rank,
    },
}

/// Who a worker is, and how it finds the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Which job.
    pub job: JobId,
    /// Which start of it.
    pub epoch: Epoch,
    /// Position of this worker in the job.
    pub rank: Rank,
    /// Every node of the job, in node order.
    pub nodes: Vec<NodeRanks>,
    /// The key with which this rank opens the store.
    pub key: RankKey,
    /// Where the store listens; `None` when the job has one node.
    pub store: Option<SocketAddr>,
}

/// The workers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRanks {
    /// Its name in the hostfile.
    pub host: String,
    /// Ranks of its workers in the order of their local ranks, ascending.
    pub ranks: Vec<Rank>,
}

/// What a worker tells its agent; drawn by the launcher, needed by nobody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// The group is complete; work begins.
    Ready,
    /// A training step is done.
    Step {
        /// Which, from 1 on.
        step: u64,
        /// How many there will be.
        steps: Option<u64>,
        /// Loss of the step.
        loss: Option<f64>,
        /// Speed of all workers.
        tokens_per_s: Option<f64>,
    },
    /// An operation failed because this rank is gone, or gave up: the cause is there, not here.
    PeerLost {
        /// Which.
        rank: Rank,
    },
}

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// Another release on the other side.
    #[error("the other side speaks contract {0}, we speak {VERSION}")]
    Version(u8),
    /// More than a message can have.
    #[error("a message of {bytes} bytes is announced, at most {bytes_max} are read")]
    TooLong {
        /// Announced.
        bytes: usize,
        /// Read.
        bytes_max: usize,
    },
    /// Bytes that mean nothing.
    #[error("a message is malformed")]
    Malformed,
    /// The first message was no welcome.
    #[error("the first message is not a welcome")]
    NoWelcome,
    /// The welcome contradicts itself.
    #[error("the welcome is impossible: {0}")]
    Impossible(&'static str),
}

impl Welcome {
    /// Where every rank runs. Fails unless ranks are dense and each lives on one node.
    pub fn placement(&self) -> Result<Placement, ContractError> {
        let world: usize = self.nodes.iter().map(|node| node.ranks.len()).sum();
        let mut node_of = vec![None; world];
        for (node, ranks) in self.nodes.iter().enumerate() {
            if !ranks.ranks.is_sorted() {
                return Err(ContractError::Impossible("ranks of a node are not ascending"));
            }
            for rank in &ranks.ranks {
                let place = node_of.get_mut(rank.index());
                match place {
                    Some(place @ None) => *place = Some(node),
                    _ => return Err(ContractError::Impossible("ranks are not dense")),
                }
            }
        }
        let node_of = node_of.into_iter().flatten().collect();
        let hosts = self.nodes.iter().map(|node| node.host.clone()).collect();
        let placement = Placement::new(hosts, node_of)
            .ok_or(ContractError::Impossible("a node has no worker"))?;
        if self.rank.index() < world {
            Ok(placement)
        } else {
            Err(ContractError::Impossible("the rank is not in the job"))
        }
    }
}

/// Makes the segment for the `local_world` workers of a node; one for every epoch. The descriptor is
/// not inherited unless the agent says so.
pub fn create_segment(local_world: usize) -> Result<OwnedFd, SegmentError> {
    Segment::create(local_world)
}

/// Makes the two ends of a rank socket, the agent's first; neither is inherited unless the agent
/// says so.
pub fn create_rank_socket() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Lays out a message: a [`ToWorker`] or a [`Note`].
pub fn encode_frame<M: Serialize>(message: &M) -> Vec<u8> {
    let body = postcard::to_allocvec(message).expect("texts and numbers serialize");
    let mut frame = Vec::with_capacity(HEAD_BYTES + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.push(VERSION);
    frame.extend_from_slice(&body);
    frame
}

/// Cuts a stream of bytes into messages of one kind.
#[derive(Debug)]
pub struct FrameReader {
    received: Vec<u8>,
    bytes_max: usize,
}

impl FrameReader {
    /// For what an agent sends.
    pub fn from_agent() -> Self {
        Self { received: Vec::new(), bytes_max: TO_WORKER_BYTES_MAX }
    }

    /// For what a worker sends.
    pub fn from_worker() -> Self {
        Self { received: Vec::new(), bytes_max: NOTE_BYTES_MAX }
    }

    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The next message; `None`: more bytes must come. After an error the stream is of no use.
    #[expect(clippy::should_implement_trait, reason = "the caller names the kind of message")]
    pub fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, ContractError> {
        let Some(head) = self.received.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [a, b, c, d, version] = *head;
        if version != VERSION {
            return Err(ContractError::Version(version));
        }
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        if self.bytes_max < bytes {
            return Err(ContractError::TooLong { bytes, bytes_max: self.bytes_max });
        }
        let end = HEAD_BYTES + bytes;
        let Some(body) = self.received.get(HEAD_BYTES..end) else { return Ok(None) };
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
        check_placement(&[&[0, 1], &[1]], 0, "the welcome is impossible: ranks are not dense");
        check_placement(&[&[0, 3]], 0, "the welcome is impossible: ranks are not dense");
        check_placement(
            &[&[1, 0]],
            0,
            "the welcome is impossible: ranks of a node are not ascending",
        );
        check_placement(&[&[0], &[]], 0, "the welcome is impossible: a node has no worker");
        check_placement(&[&[0]], 1, "the welcome is impossible: the rank is not in the job");
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
    fn contract_bytes_match_golden_bytes_of_version_2() {
        let frame = encode_frame(&Note::PeerLost { rank: Rank(300) });
        assert_eq!(frame, [3, 0, 0, 0, 2, 2, 0xac, 2]);
        let frame = encode_frame(&ToWorker::PeerGone { rank: Rank(1) });
        assert_eq!(frame, [2, 0, 0, 0, 2, 1, 1]);
        let frame = encode_frame(&ToWorker::PeerEnded { rank: Rank(1) });
        assert_eq!(frame, [2, 0, 0, 0, 2, 2, 1]);
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
            &[0xff, 0xff, 0xff, 0xff, 2],
            "a message of 4294967295 bytes is announced, at most 4096 are read",
        );
        check_bytes(&[1, 0, 0, 0, 99, 0], "the other side speaks contract 99, we speak 2");
        check_bytes(&[0, 0, 0, 0, 2], "a message is malformed");
        check_bytes(&[2, 0, 0, 0, 2, 0, 0], "a message is malformed");
        check_bytes(&[1, 0, 0, 0, 2, 0], "Some(Ready)");
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

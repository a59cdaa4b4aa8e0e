//! The fingerprint of a call, and the one comparison of the calls of two ranks. Pure.
//!
//! A rank shows its fingerprint where its peers read it: beside the flags of a round, in a mailbox of the
//! node, or in the header of a message over TCP. A rank that reads one compares it here.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::Rank;
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::dtype::element::{Dtype, ReduceOp, ReduceOrder};

/// Properties of an operation that must be equal on all ranks.
///
/// It is sent with every flag and before every message, as three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The operation.
    pub op: Operation,
    /// Element type.
    pub dtype: Dtype,
    /// Reduction; `Sum` if the operation has none.
    pub reduce: ReduceOp,
    /// Order of the reduction.
    pub order: ReduceOrder,
    /// Root, as a rank of the job; 0 if the operation has none.
    pub root: Rank,
    /// Number of elements.
    pub count: u64,
    /// Sequence number among the rounds of the group, starting at 1.
    pub seq: u64,
}

/// Position of the root in the first word of an encoded fingerprint, in bits.
pub(crate) const ROOT_BITS: u32 = 32;

impl Fingerprint {
    /// Encodes the fingerprint as `[kinds and root, count, seq]`.
    pub(crate) fn encode(&self) -> [u64; 3] {
        let kinds = self.op as u64 | (self.dtype as u64) << 8 | (self.reduce as u64) << 16;
        let kinds = kinds | (self.order as u64) << 24;
        [kinds | u64::from(self.root.0) << ROOT_BITS, self.count, self.seq]
    }

    /// Decodes a fingerprint; `None` for words that no rank writes.
    pub(crate) fn decode([kinds, count, seq]: [u64; 3]) -> Option<Self> {
        Some(Self {
            op: Operation::from_code(kinds as u8)?,
            dtype: Dtype::from_code((kinds >> 8) as u8)?,
            reduce: ReduceOp::from_code((kinds >> 16) as u8)?,
            order: ReduceOrder::from_code((kinds >> 24) as u8)?,
            root: Rank((kinds >> ROOT_BITS) as u32),
            count,
            seq,
        })
    }
}

/// How many ranks of the nodes of two ranks are known to have made each of their calls, which differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// Ranks that have made the call of this rank, itself included.
    pub own: u16,
    /// Ranks that have made the call of the peer, itself included.
    pub peer: u16,
}

impl CallCounts {
    /// Nothing is known of further ranks.
    pub(crate) const ONE_EACH: Self = Self { own: 1, peer: 1 };

    /// The same counts, seen from the peer.
    pub(crate) fn seen_from_peer(self) -> Self {
        Self { own: self.peer, peer: self.own }
    }
}

/// A peer has made another call than this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DifferentCall {
    /// Call of this rank.
    pub(super) own_call: Fingerprint,
    /// The peer, as a rank of the job.
    pub(super) peer: Rank,
    /// Its encoded fingerprint.
    pub(super) peer_words: [u64; 3],
    pub(super) counts: CallCounts,
}

impl DifferentCall {
    /// The error of this rank. Both ranks of a message encode the call of its sender, so this rank, which reads
    /// it, is the receiver.
    pub(crate) fn new(encoded: Fingerprint, peer: Rank, peer_words: [u64; 3]) -> Self {
        let op = if encoded.op == Operation::Send { Operation::Recv } else { encoded.op };
        let own_call = Fingerprint { op, ..encoded };
        Self { own_call, peer, peer_words, counts: CallCounts::ONE_EACH }
    }

    /// Counts the ranks that have made either call among all that have made one.
    pub(crate) fn count(self, calls: impl Iterator<Item = [u64; 3]>) -> Self {
        let own_words = self.own_call.encode();
        let mut counts = CallCounts { own: 0, peer: 0 };
        for words in calls {
            counts.own += u16::from(words == own_words);
            counts.peer += u16::from(words == self.peer_words);
        }
        Self { counts, ..self }
    }
}

/// Compares what this rank expects with what a peer has written.
pub(crate) fn compare_calls(
    expected: Fingerprint,
    peer: impl FnOnce() -> Rank,
    peer_words: [u64; 3],
) -> Result<(), DifferentCall> {
    if peer_words == expected.encode() {
        return Ok(());
    }
    Err(DifferentCall::new(expected, peer(), peer_words))
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, dtype, reduce, order, root, count, seq: _ } = self;
        match op {
            Operation::AllReduce | Operation::ReduceScatter | Operation::ReduceScatterOfPieces => {
                let order = match order {
                    ReduceOrder::Canonical => "",
                    ReduceOrder::Any => " in any order",
                };
                write!(f, "{op}({count} × {dtype}, {reduce}{order})")
            }
            Operation::Reduce => write!(f, "{op}({count} × {dtype}, {reduce}, to rank {root})"),
            Operation::Broadcast | Operation::Scatter => {
                write!(f, "{op}({count} × {dtype}, from rank {root})")
            }
            Operation::Gather => write!(f, "{op}({count} × {dtype}, to rank {root})"),
            Operation::AllGather
            | Operation::AllToAll
            | Operation::Send
            | Operation::Recv
            | Operation::SendRecv
            | Operation::Exchange => write!(f, "{op}({count} × {dtype})"),
            Operation::Barrier
            | Operation::MonitoredBarrier
            | Operation::Split
            | Operation::GroupOf => write!(f, "{op}()"),
        }
    }
}

#[cfg(test)]
impl Fingerprint {
    /// A call of the first round, with so many elements.
    pub(crate) fn of_test(op: Operation, count: u64) -> Self {
        Self {
            op,
            dtype: Dtype::F32,
            reduce: ReduceOp::Sum,
            order: ReduceOrder::Canonical,
            root: Rank(0),
            count,
            seq: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_survives_encoding() {
        let fingerprint = Fingerprint {
            op: Operation::Broadcast,
            dtype: Dtype::F64,
            reduce: ReduceOp::Max,
            order: ReduceOrder::Any,
            root: Rank(131_071),
            count: u64::MAX,
            seq: 7,
        };
        assert_eq!(Fingerprint::decode(fingerprint.encode()), Some(fingerprint));
        assert_eq!(Fingerprint::decode([0, 0, 0]), None);
    }

    #[test]
    fn receiver_of_a_different_message_is_named_as_receiver() {
        let call = Fingerprint::of_test;
        let compare =
            |own: Fingerprint, other: Fingerprint| compare_calls(own, || Rank(3), other.encode());
        let send = call(Operation::Send, 4);
        assert_eq!(compare(send, send), Ok(()));
        let other = call(Operation::Send, 5);
        let error = compare(send, other).expect_err("the counts differ");
        let own_call = call(Operation::Recv, 4);
        let counts = CallCounts::ONE_EACH;
        let peer_words = other.encode();
        assert_eq!(error, DifferentCall { own_call, peer: Rank(3), peer_words, counts });
        let barrier = call(Operation::Barrier, 0);
        assert_eq!(compare(barrier, send).map_err(|error| error.own_call), Err(barrier));
    }
}

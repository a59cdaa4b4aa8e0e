//! The first failure of a job, as ranks tell each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Rank, prefix};
use crate::runtime::comm::core::error::{Cause, Departure};
use crate::runtime::comm::core::fingerprint::{CallCounts, Fingerprint};
use crate::runtime::comm::core::operation::Operation;

/// Largest reason of a record in bytes; the rest is cut off.
const REASON_BYTES_MAX: usize = 512;
/// Most ranks that a record names as late. A number has at most five bytes.
const LATE_RANKS_MAX: usize = 192;

/// Lost rank, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) rank: Rank,
    pub(crate) how: Departure,
}

/// Abort of a group with its reason; the first one of an epoch is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AbortRecord {
    /// Rank that aborted the group.
    pub(crate) by: Rank,
    pub(crate) reason: AbortReason,
}

/// Why a rank has aborted a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AbortReason {
    /// A rank is lost.
    Lost(Loss),
    /// The deadline of an operation, by its code, passed while the rank waited for others.
    Late { op: u8, waiting_for: Vec<Rank>, timeout: Duration },
    /// A peer called another operation; the calls are encoded fingerprints.
    Different { own_call: [u64; 3], peer: Rank, peer_call: [u64; 3], counts: CallCounts },
    /// What the program or the library says.
    Said(String),
}

impl AbortRecord {
    /// Record of an operation that failed on rank `own`; of the first failure, if that was on another rank.
    pub(crate) fn of_failure(own: Rank, op: Operation, cause: &Cause) -> Self {
        let reason = match cause {
            Cause::FailedFirst { rank, op, cause } => return Self::of_failure(*rank, *op, cause),
            Cause::Aborted { by, reason } => return Self::said(*by, reason),
            Cause::PeerLost { rank, how, .. } => AbortReason::Lost(Loss { rank: *rank, how: *how }),
            Cause::Deadline { waiting_for, timeout } => AbortReason::Late {
                op: op as u8,
                waiting_for: waiting_for.iter().copied().take(LATE_RANKS_MAX).collect(),
                timeout: *timeout,
            },
            Cause::Mismatch { own_call, peer, peer_call, counts } => AbortReason::Different {
                own_call: own_call.encode(),
                peer: *peer,
                peer_call: peer_call.encode(),
                counts: *counts,
            },
            other => return Self::said(own, &other.to_string()),
        };
        Self { by: own, reason }
    }

    /// Record of a rank that gives this reason.
    pub(crate) fn said(by: Rank, reason: &str) -> Self {
        let reason = prefix(reason, REASON_BYTES_MAX).to_owned();
        Self { by, reason: AbortReason::Said(reason) }
    }

    /// Record that a rank is lost.
    pub(crate) fn lost(by: Rank, rank: Rank, how: Departure) -> Self {
        Self { by, reason: AbortReason::Lost(Loss { rank, how }) }
    }

    /// The record as bytes, for the store and for the cell of a segment, which has room for the longest.
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("texts and numbers serialize")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// The failure as rank `own` sees it, which is not that of a lost rank; `None` for bytes that no rank writes.
    pub(crate) fn cause_on(self, own: Rank) -> Option<Cause> {
        let by = self.by;
        let (op, cause) = match self.reason {
            AbortReason::Said(reason) => return Some(Cause::Aborted { by, reason }),
            AbortReason::Lost(_) => return None,
            AbortReason::Late { op, waiting_for, timeout } => {
                (Operation::from_code(op)?, Cause::Deadline { waiting_for, timeout })
            }
            AbortReason::Different { own_call, peer, peer_call, counts } => {
                let (own_call, peer_call) =
                    (Fingerprint::decode(own_call)?, Fingerprint::decode(peer_call)?);
                if peer == own {
                    // The same difference, seen from here.
                    return Some(Cause::Mismatch {
                        own_call: peer_call,
                        peer: by,
                        peer_call: own_call.into(),
                        counts: counts.seen_from_peer(),
                    });
                }
                let peer_call = peer_call.into();
                (own_call.op, Cause::Mismatch { own_call, peer, peer_call, counts })
            }
        };
        Some(if by == own {
            cause
        } else {
            Cause::FailedFirst { rank: by, op, cause: cause.into() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(record: &AbortRecord, own: u32) -> String {
        let record = AbortRecord::decode(&record.encode()).expect("it survives encoding");
        record.cause_on(Rank(own)).map_or_else(String::new, |cause| cause.to_string())
    }

    #[test]
    fn late_rank_is_named_on_every_rank() {
        let cause = Cause::Deadline { waiting_for: vec![Rank(1)], timeout: Duration::from_secs(2) };
        let record = AbortRecord::of_failure(Rank(0), Operation::AllReduce, &cause);
        let text = "the deadline passed while waiting for rank 1, after 2.0 s";
        assert_eq!(seen(&record, 0), text);
        for other in [1, 2] {
            assert_eq!(seen(&record, other), format!("rank 0 failed first, in all_reduce: {text}"));
        }
        let forwarded = record.clone().cause_on(Rank(2)).expect("a cause");
        assert_eq!(AbortRecord::of_failure(Rank(2), Operation::Barrier, &forwarded), record);
    }

    #[test]
    fn both_ranks_of_a_mismatch_see_their_own_call() {
        let call = Fingerprint::of_test;
        let (own_call, peer_call) = (call(Operation::Recv, 5), call(Operation::Send, 4));
        let counts = CallCounts::ONE_EACH;
        let peer_call = peer_call.into();
        let cause = Cause::Mismatch { own_call, peer: Rank(0), peer_call, counts };
        let record = AbortRecord::of_failure(Rank(1), Operation::Recv, &cause);
        let own = "this rank called recv(5 × f32), but rank 0 called send(4 × f32)";
        assert_eq!(seen(&record, 1), own);
        let peer = "this rank called send(4 × f32), but rank 1 called recv(5 × f32)";
        assert_eq!(seen(&record, 0), peer);
        let third = "rank 1 failed first, in recv: rank 1 called recv(5 × f32), but rank 0 called send(4 × f32)";
        assert_eq!(seen(&record, 2), third);
    }

    #[test]
    fn ranks_that_agree_are_counted_from_both_sides() {
        let call = Fingerprint::of_test;
        let (own_call, peer_call) = (call(Operation::AllReduce, 5), call(Operation::Barrier, 0));
        let counts = CallCounts { own: 3, peer: 2 };
        let peer_call = peer_call.into();
        let cause = Cause::Mismatch { own_call, peer: Rank(0), peer_call, counts };
        let record = AbortRecord::of_failure(Rank(1), Operation::AllReduce, &cause);
        let own = "this rank and 2 others called all_reduce(5 × f32, sum), but rank 0 and 1 other called barrier()";
        assert_eq!(seen(&record, 1), own);
        let peer = "this rank and 1 other called barrier(), but rank 1 and 2 others called all_reduce(5 × f32, sum)";
        assert_eq!(seen(&record, 0), peer);
    }
}

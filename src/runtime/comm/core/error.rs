//! Errors of collectives: operation, rank and cause.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Rank, debug_as_message, show_duration};
use crate::runtime::comm::core::fingerprint::{CallCounts, DifferentCall, Fingerprint};
use crate::runtime::comm::core::operation::Operation;

/// A failed collective operation, as seen by one rank.
///
/// Ranks are numbered as in the whole job, also in groups that were created by
/// [`Group::split`](crate::runtime::Group::split), so that they match the launcher's messages. The debug
/// form is the message.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectiveError {
    /// The operation.
    pub op: Operation,
    /// Sequence number of the operation in the group, starting at 1.
    pub seq: u64,
    /// Number of bytes that this rank passed.
    pub bytes: u64,
    /// Rank that reports the error.
    pub rank: Rank,
    /// Cause of the failure.
    pub cause: Cause,
    /// Operation of the group that failed earlier, if that is the cause.
    pub earlier: Option<Operation>,
}

debug_as_message!(CollectiveError);

/// Cause of a failed collective operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The deadline passed.
    Deadline {
        /// Ranks that had not called the operation.
        waiting_for: Vec<Rank>,
        /// Time from the start of the operation to its deadline.
        timeout: Duration,
    },
    /// A rank exited or its connection was lost.
    PeerLost {
        /// Lost rank.
        rank: Rank,
        /// Host of the rank.
        host: String,
        /// How the rank ended.
        how: Departure,
    },
    /// Two ranks called different operations.
    Mismatch {
        /// Operation of this rank.
        own_call: Fingerprint,
        /// Rank that called a different operation.
        peer: Rank,
        /// Operation of that rank; boxed, so that errors stay small.
        peer_call: Box<Fingerprint>,
        /// Number of ranks that are known to have called each of them.
        counts: CallCounts,
    },
    /// Another rank failed first: its deadline passed, or it found that two ranks called different operations.
    FailedFirst {
        /// Rank that failed first.
        rank: Rank,
        /// Operation that failed there.
        op: Operation,
        /// Why it failed there.
        cause: Box<Cause>,
    },
    /// A rank aborted the group; every further operation fails.
    Aborted {
        /// Rank that aborted.
        by: Rank,
        /// Reason that the rank gave.
        reason: String,
    },
    /// Invalid arguments, such as lengths or ranks.
    Argument(String),
    /// The transport failed.
    Backend(String),
    /// The system has no more threads or memory.
    System(String),
}

impl From<DifferentCall> for Cause {
    fn from(DifferentCall { own_call, peer, peer_words, counts }: DifferentCall) -> Self {
        match Fingerprint::decode(peer_words) {
            Some(peer_call) => {
                Self::Mismatch { own_call, peer, peer_call: peer_call.into(), counts }
            }
            None => Self::Backend(format!("protocol error: invalid fingerprint from rank {peer}")),
        }
    }
}

/// How a rank ended, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Departure {
    /// It failed, or the reason is not known.
    Gone = 0,
    /// It exited with 0 before this operation.
    Exited = 1,
    /// It dropped its group and is still running.
    Left = 2,
}

impl CollectiveError {
    /// Error of a call that did not become an operation of the group.
    pub(crate) fn rejected(op: Operation, rank: Rank, cause: Cause) -> Self {
        Self { op, seq: 0, bytes: 0, rank, cause, earlier: None }
    }
}

impl std::error::Error for CollectiveError {}

impl fmt::Display for CollectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, seq, bytes, rank, cause, earlier } = self;
        write!(f, "{op} ")?;
        // A rejected call has no number, because it is not an operation of the group.
        if *seq != 0 {
            write!(f, "(operation {seq}, {bytes} bytes) ")?;
        }
        write!(f, "failed on rank {rank}: ")?;
        if let Some(op) = earlier {
            write!(f, "the group failed earlier, in {op}: ")?;
        }
        cause.fmt(f)
    }
}

impl Cause {
    /// Whether another rank failed first.
    pub(crate) fn is_of_another_rank(&self) -> bool {
        matches!(self, Self::PeerLost { .. } | Self::Aborted { .. } | Self::FailedFirst { .. })
    }

    /// Formats the cause of a failure on the rank that is called `who`.
    fn show(&self, f: &mut fmt::Formatter<'_>, who: &str) -> fmt::Result {
        match self {
            Self::Deadline { waiting_for, timeout } => {
                let ranks = show_ranks(waiting_for);
                let limit = show_duration(*timeout);
                write!(f, "the deadline passed while waiting for {ranks}, after {limit}")
            }
            Self::PeerLost { rank, host, how: Departure::Gone } => {
                write!(f, "rank {rank} on host `{host}` is gone")
            }
            Self::PeerLost { rank, host, how: Departure::Exited } => {
                write!(f, "rank {rank} on host `{host}` exited with 0 before it took part")
            }
            Self::PeerLost { rank, host, how: Departure::Left } => {
                write!(f, "rank {rank} on host `{host}` dropped the group before it took part")
            }
            Self::Mismatch { own_call, peer, peer_call, counts } => {
                let [own, others] = [counts.own, counts.peer].map(and_others);
                write!(f, "{who}{own} called {own_call}, ")?;
                write!(f, "but rank {peer}{others} called {peer_call}")?;
                if own_call.seq == peer_call.seq {
                    return Ok(());
                }
                write!(f, " (round {} here, round {} there)", own_call.seq, peer_call.seq)
            }
            Self::FailedFirst { rank, op, cause } => {
                write!(f, "rank {rank} failed first, in {op}: ")?;
                cause.show(f, &format!("rank {rank}"))
            }
            Self::Aborted { by, reason } => write!(f, "rank {by} aborted the group: {reason}"),
            Self::Argument(problem) | Self::Backend(problem) | Self::System(problem) => {
                f.write_str(problem)
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, "this rank")
    }
}

/// Returns ` and 2 others` behind the first of three ranks.
fn and_others(ranks: u16) -> String {
    match ranks {
        0 | 1 => String::new(),
        2 => " and 1 other".to_owned(),
        _ => format!(" and {} others", ranks - 1),
    }
}

/// Largest number of ranks that a message lists.
pub(crate) const RANKS_SHOWN_MAX: usize = 8;

pub(crate) fn show_ranks(ranks: &[Rank]) -> String {
    let shown: Vec<String> = ranks.iter().take(RANKS_SHOWN_MAX).map(Rank::to_string).collect();
    let more = match ranks.len().saturating_sub(RANKS_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn collective_error_names_operation_rank_and_cause() {
        let error = CollectiveError {
            op: Operation::AllReduce,
            seq: 12,
            bytes: 4096,
            rank: Rank(0),
            cause: Cause::PeerLost { rank: Rank(3), host: "n2".into(), how: Departure::Gone },
            earlier: None,
        };
        let expect =
            "all_reduce (operation 12, 4096 bytes) failed on rank 0: rank 3 on host `n2` is gone";
        assert_eq!(error.to_string(), expect);
        let cause = Cause::Argument("rank 9 is not in a group of size 4".into());
        let error = CollectiveError { seq: 0, cause, ..error };
        let expect = "all_reduce failed on rank 0: rank 9 is not in a group of size 4";
        assert_eq!(error.to_string(), expect);
        let waiting_for = (0..10).map(Rank).collect();
        let deadline = Cause::Deadline { waiting_for, timeout: Duration::from_millis(2500) };
        assert_eq!(
            deadline.to_string(),
            "the deadline passed while waiting for ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more, after 2.5 s"
        );
    }
}

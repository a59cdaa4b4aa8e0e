//! Errors of groups and collectives, with the rank, the host and the operation.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::Rank;
use crate::runtime::element::{Dtype, ReduceOp, ReduceOrder};

/// Result whose error type is [`Error`] by default; uses with two arguments work after a glob import.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of creating or using a group.
///
/// Its debug form is its message, because Rust prints the debug form if `main` returns an error.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment does not describe a worker.
    #[error("this process was not started as a worker; type `remuda run -n 2 {program}`")]
    NoEnvironment {
        /// Path with which this program was started.
        program: String,
    },
    /// An environment variable has an invalid value.
    #[error("environment variable `{name}` is {problem}")]
    BadEnvironment {
        /// Name of the variable.
        name: &'static str,
        /// Description of the problem.
        problem: String,
    },
    /// The agent sent an invalid message.
    #[error("invalid message from the agent: {0}")]
    Contract(#[from] crate::runtime::contract::ContractError),
    /// The store refused a request, closed the connection, or timed out.
    #[error("cannot {action} through the store at {address}: {source}")]
    Store {
        /// Address of the store.
        address: std::net::SocketAddr,
        /// Request that failed.
        action: &'static str,
        /// Reason.
        source: crate::runtime::store::ClientError,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Os {
        /// Operation that failed.
        action: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The shared memory of this node cannot be used.
    #[error(transparent)]
    Segment(#[from] crate::runtime::shm::SegmentError),
    /// The shared memory is too small.
    #[error("cannot allocate {bytes} bytes of shared memory: {available} bytes are free")]
    OutOfMemory {
        /// Number of bytes requested.
        bytes: usize,
        /// Size of the largest free range.
        available: usize,
    },
    /// A rank failed while a group was split.
    #[error("rank {rank} cannot join the new group: {problem}")]
    Split {
        /// Rank that failed.
        rank: Rank,
        /// Reason that the rank gave.
        problem: String,
    },
    /// A GPU or a library for GPUs cannot be used.
    #[cfg(feature = "nccl")]
    #[error("{0}")]
    Device(String),
    /// Invalid arguments of a layout, sampler or optimizer.
    #[error("{0}")]
    BadArgument(String),
    /// A collective operation failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn os(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Os { action, source }
    }
}

/// A failed collective operation, as seen by one rank.
///
/// Ranks are numbered as in the whole job, also in groups that were created by
/// [`Group::split`](crate::runtime::Group::split), so that they match the launcher's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        ours: Fingerprint,
        /// Rank that called a different operation.
        peer: Rank,
        /// Operation of that rank.
        theirs: Fingerprint,
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

/// Lost rank, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) rank: Rank,
    pub(crate) how: Departure,
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline { waiting_for, timeout } => {
                let ranks = show_ranks(waiting_for);
                write!(f, "the deadline passed while waiting for {ranks}, after {timeout:.1?}")
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
            Self::Mismatch { ours, peer, theirs } => {
                write!(f, "this rank called {ours}, but rank {peer} called {theirs}")
            }
            Self::Aborted { by, reason } => write!(f, "rank {by} aborted the group: {reason}"),
            Self::Argument(problem) | Self::Backend(problem) | Self::System(problem) => {
                f.write_str(problem)
            }
        }
    }
}

/// Largest number of ranks that a message lists.
const RANKS_SHOWN_MAX: usize = 8;

fn show_ranks(ranks: &[Rank]) -> String {
    let shown: Vec<String> = ranks.iter().take(RANKS_SHOWN_MAX).map(Rank::to_string).collect();
    let more = match ranks.len().saturating_sub(RANKS_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}{more}", shown.join(", "))
}

/// Kind of an operation of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Every rank gets the reduction of all ranks' data.
    AllReduce = 1,
    /// Every rank gets the root's data.
    Broadcast = 2,
    /// Every rank gets all ranks' data, in rank order.
    AllGather = 3,
    /// Rank `r` gets part `r` of the reduction.
    ReduceScatter = 4,
    /// Every rank waits until all ranks have called it.
    Barrier = 5,
    /// One rank sends to another.
    Send = 6,
    /// One rank receives from another.
    Recv = 7,
    /// The root gets the reduction of all ranks' data.
    Reduce = 8,
    /// The root gets all ranks' data, in rank order.
    Gather = 9,
    /// Rank `r` gets part `r` of the root's data.
    Scatter = 10,
    /// Rank `r` gets part `r` of all ranks' data, in rank order.
    AllToAll = 11,
    /// A rank sends to one rank and receives from one at the same time.
    SendRecv = 12,
    /// A rank sends to several ranks and receives from several at the same time.
    Exchange = 13,
    /// A group is split into several.
    Split = 14,
}

impl Operation {
    const ALL: [Self; 14] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Barrier,
        Self::Send,
        Self::Recv,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::SendRecv,
        Self::Exchange,
        Self::Split,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| *operation as u8 == code)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast => "broadcast",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Barrier => "barrier",
            Self::Send => "send",
            Self::Recv => "recv",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::SendRecv => "send_recv",
            Self::Exchange => "exchange",
            Self::Split => "split",
        })
    }
}

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
const ROOT_BITS: u32 = 32;

impl Fingerprint {
    /// Returns the fingerprint as the receiver of a message sees it.
    pub(crate) fn to_recv(self) -> Self {
        let op = if self.op == Operation::Send { Operation::Recv } else { self.op };
        Self { op, ..self }
    }

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

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, dtype, reduce, order, root, count, seq } = self;
        match op {
            Operation::AllReduce | Operation::ReduceScatter => {
                let order = match order {
                    ReduceOrder::Canonical => "",
                    ReduceOrder::Any => " in any order",
                };
                write!(f, "{op}({count} × {dtype}, {reduce}{order})")?;
            }
            Operation::Reduce => write!(f, "{op}({count} × {dtype}, {reduce}, to rank {root})")?,
            Operation::Broadcast | Operation::Scatter => {
                write!(f, "{op}({count} × {dtype}, from rank {root})")?;
            }
            Operation::Gather => write!(f, "{op}({count} × {dtype}, to rank {root})")?,
            Operation::AllGather
            | Operation::AllToAll
            | Operation::Send
            | Operation::Recv
            | Operation::SendRecv
            | Operation::Exchange => write!(f, "{op}({count} × {dtype})")?,
            Operation::Barrier | Operation::Split => write!(f, "{op}()")?,
        }
        write!(f, " as round {seq}")
    }
}

impl Error {
    /// Returns whether the cause is the system (a system call, memory, threads) and not the request.
    pub fn is_of_system(&self) -> bool {
        match self {
            Self::Os { .. } | Self::OutOfMemory { .. } | Self::Split { .. } => true,
            Self::Segment(error) => matches!(error, crate::runtime::shm::SegmentError::Os { .. }),
            Self::Collective(error) => matches!(error.cause, Cause::System(_)),
            Self::NoEnvironment { .. }
            | Self::BadEnvironment { .. }
            | Self::Contract(_)
            | Self::Store { .. }
            | Self::BadArgument(_) => false,
            #[cfg(feature = "nccl")]
            Self::Device(_) => false,
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
            "the deadline passed while waiting for ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more, after 2.5s"
        );
    }
}

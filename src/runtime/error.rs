//! Errors of the runtime, which name the rank, its host and the operation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::Rank;
use crate::runtime::element::{Dtype, ReduceOp, ReduceOrder};

/// Result of this module; a glob import leaves the usual two-argument `Result` usable.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a group could not be made or used.
///
/// Its debug form is its message: that is what Rust prints when `main` returns it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing told this process that it is a worker.
    #[error("this process was not started as a worker; type `remuda run -n 2 {program}`")]
    NoEnvironment {
        /// How this program was called.
        program: String,
    },
    /// A variable of the environment is there but makes no sense.
    #[error("environment variable `{name}` is {problem}")]
    BadEnvironment {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The agent, or something that poses as it, said what cannot be.
    #[error("the agent's message is not usable: {0}")]
    Contract(#[from] crate::runtime::contract::ContractError),
    /// The store refused, vanished, or took too long.
    #[error("cannot {action} through the store at {address}: {source}")]
    Store {
        /// Where it listens.
        address: std::net::SocketAddr,
        /// What was asked of it.
        action: &'static str,
        /// The reason.
        source: crate::runtime::store::ClientError,
    },
    /// The kernel refused.
    #[error("cannot {action}: {source}")]
    Os {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The memory that the workers of this node share cannot be used.
    #[error(transparent)]
    Segment(#[from] crate::runtime::shm::SegmentError),
    /// There is not that much shared memory.
    #[error("cannot allocate {bytes} bytes of shared memory: {available} bytes are free")]
    OutOfMemory {
        /// Asked for.
        bytes: usize,
        /// The largest free range.
        available: usize,
    },
    /// A rank could not do its part in making a group of some of the ranks.
    #[error("rank {rank} cannot take part in the new group: {problem}")]
    Split {
        /// Which.
        rank: Rank,
        /// Why, in its words.
        problem: String,
    },
    /// A GPU, or what moves numbers between GPUs, cannot be used.
    #[cfg(feature = "nccl")]
    #[error("{0}")]
    Device(String),
    /// Arguments that no layout, sampler or optimizer can work with.
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

/// A collective operation that did not happen, as one rank saw it. Ranks are those of the job, in
/// groups that [`Group::split`](crate::runtime::Group::split) made too, so that they are those that
/// the launcher speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveError {
    /// Which operation.
    pub op: Operation,
    /// Its number among the operations of the group, from 1 on.
    pub seq: u64,
    /// Bytes that this rank passed.
    pub bytes: u64,
    /// Who tells.
    pub rank: Rank,
    /// Why.
    pub cause: Cause,
    /// The operation of the group that had failed before, if that is why.
    pub earlier: Option<Operation>,
}

/// Why a collective operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Time was up.
    Deadline {
        /// Ranks that had not come.
        waiting_for: Vec<Rank>,
    },
    /// A rank is gone.
    PeerLost {
        /// Which.
        rank: Rank,
        /// Where it ran.
        host: String,
        /// What is known of its end.
        how: Departure,
    },
    /// Two ranks called different things.
    Mismatch {
        /// What this rank called.
        ours: Fingerprint,
        /// Who called something else.
        peer: Rank,
        /// What that was.
        theirs: Fingerprint,
    },
    /// Somebody gave up; the group is of no use any more.
    Aborted {
        /// Who.
        by: Rank,
        /// Why, in its words.
        reason: String,
    },
    /// The arguments cannot work: lengths, ranks.
    Argument(String),
    /// The transport below failed.
    Backend(String),
    /// The system has no more of something: threads, memory.
    System(String),
}

/// What is known of the end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Departure {
    /// It failed, or nobody knows.
    Gone = 0,
    /// It ended well, but before this operation.
    Exited = 1,
    /// It has dropped its group, and lives.
    Left = 2,
}

/// Lost rank, and how it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) rank: Rank,
    pub(crate) how: Departure,
}

impl CollectiveError {
    /// An error of a call that did not become an operation of the group.
    pub(crate) fn before(op: Operation, rank: Rank, cause: Cause) -> Self {
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
            write!(f, "the group had failed before, at {op}: ")?;
        }
        cause.fmt(f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline { waiting_for } => {
                write!(f, "the deadline passed while waiting for {}", show_ranks(waiting_for))
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
                write!(f, "we called {ours}, but rank {peer} called {theirs}")
            }
            Self::Aborted { by, reason } => write!(f, "rank {by} aborted the group: {reason}"),
            Self::Argument(problem) | Self::Backend(problem) | Self::System(problem) => {
                f.write_str(problem)
            }
        }
    }
}

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

/// Operations of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Everybody gets the reduction of everybody's data.
    AllReduce = 1,
    /// Everybody gets the root's data.
    Broadcast = 2,
    /// Everybody gets everybody's data, in rank order.
    AllGather = 3,
    /// Rank `r` gets part `r` of the reduction.
    ReduceScatter = 4,
    /// Nobody goes on before everybody has come.
    Barrier = 5,
    /// To one peer.
    Send = 6,
    /// From one peer.
    Recv = 7,
    /// The root gets the reduction of everybody's data.
    Reduce = 8,
    /// The root gets everybody's data, in rank order.
    Gather = 9,
    /// Rank `r` gets part `r` of the root's data.
    Scatter = 10,
    /// Rank `r` gets part `r` of everybody's data, in rank order.
    AllToAll = 11,
    /// To one peer and from one at once.
    SendRecv = 12,
    /// To several peers and from several at once.
    Exchange = 13,
    /// A group becomes several.
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

/// What must agree between the ranks of one operation.
///
/// It travels beside every flag and before every message, as three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Which operation.
    pub op: Operation,
    /// Its element type.
    pub dtype: Dtype,
    /// How elements are combined; `Sum` where nothing is.
    pub reduce: ReduceOp,
    /// In which order.
    pub order: ReduceOrder,
    /// The root, as a rank of the job; 0 where there is none.
    pub root: Rank,
    /// Elements.
    pub count: u64,
    /// Its number among the rounds of the group, from 1 on.
    pub seq: u64,
}

const ROOT_BITS: u32 = 32;

impl Fingerprint {
    /// The same operation as its receiver calls it.
    pub(crate) fn taken(self) -> Self {
        let op = if self.op == Operation::Send { Operation::Recv } else { self.op };
        Self { op, ..self }
    }

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
    /// Whether the system refused, and nobody is to blame for what was asked.
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
    fn error_message_names_operation_rank_and_cause() {
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
        let cause = Cause::Argument("there is no rank 9 among 4".into());
        let error = CollectiveError { seq: 0, cause, ..error };
        let expect = "all_reduce failed on rank 0: there is no rank 9 among 4";
        assert_eq!(error.to_string(), expect);
        let deadline = Cause::Deadline { waiting_for: (0..10).map(Rank).collect() };
        assert_eq!(
            deadline.to_string(),
            "the deadline passed while waiting for ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
        );
    }
}

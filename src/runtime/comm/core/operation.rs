//! Operations, and the fingerprint with which ranks compare their calls.

use std::fmt;

use crate::base::Rank;
use crate::runtime::dtype::element::{Dtype, ReduceOp, ReduceOrder};

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
    /// Some ranks form a group.
    GroupOf = 15,
    /// Rank `r` gets part `r` of the reduction of all lanes, of which ranks have several.
    ReduceScatterOfPieces = 16,
}

impl Operation {
    /// All kinds, in the order of their codes, which begin at 1.
    pub(crate) const ALL: [Self; 16] = [
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
        Self::GroupOf,
        Self::ReduceScatterOfPieces,
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
            Self::GroupOf => "Group::of",
            Self::ReduceScatterOfPieces => "reduce_scatter_of_pieces",
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
pub(crate) const ROOT_BITS: u32 = 32;

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
            Operation::Barrier | Operation::Split | Operation::GroupOf => write!(f, "{op}()"),
        }
    }
}

/// How the data of all ranks become one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DividedReduction {
    /// Operation on the elements.
    pub op: ReduceOp,
    /// Number by which the result is divided once; 1 leaves it unchanged.
    pub divisor: u64,
}

impl DividedReduction {
    /// The sum of all ranks' data.
    pub const SUM: Self = Self { op: ReduceOp::Sum, divisor: 1 };

    /// The sum of all ranks' data, divided by `count`.
    #[must_use]
    pub const fn mean_of(count: u64) -> Self {
        Self { op: ReduceOp::Sum, divisor: count }
    }
}

/// Parameters of one operation, as its caller passed them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationCall {
    pub(crate) op: Operation,
    pub(crate) reduce: ReduceOp,
    pub(crate) root: Option<usize>,
    pub(crate) count: usize,
    /// Elements that this rank receives from others, in operations in which ranks receive different numbers.
    pub(crate) received: usize,
}

impl OperationCall {
    pub(crate) fn new(op: Operation, count: usize) -> Self {
        Self { op, reduce: ReduceOp::Sum, root: None, count, received: 0 }
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
}

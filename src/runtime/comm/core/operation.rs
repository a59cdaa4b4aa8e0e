//! Operations, and the parameters of a call.

use std::fmt;

use crate::runtime::dtype::element::ReduceOp;

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
    /// Every rank waits until all ranks have called it, for a time that the caller has set.
    MonitoredBarrier = 17,
}

impl Operation {
    /// All kinds, in the order of their codes, which begin at 1.
    pub(crate) const ALL: [Self; 17] = [
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
        Self::MonitoredBarrier,
    ];

    /// Whether the ranks of a node compare their calls before one of them sends to another node.
    pub(crate) fn is_compared_on_nodes(self) -> bool {
        matches!(
            self,
            Self::AllReduce
                | Self::Broadcast
                | Self::AllGather
                | Self::ReduceScatter
                | Self::Barrier
                | Self::MonitoredBarrier
        )
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
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
            Self::GroupOf => "creating a group",
            Self::ReduceScatterOfPieces => "reduce_scatter_of_pieces",
            Self::MonitoredBarrier => "monitored_barrier",
        })
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
    /// Elements that this rank passes, in operations in which the ranks pass different numbers; else as `count`.
    pub(crate) passed: usize,
    /// Elements that this rank receives from others, in operations in which ranks receive different numbers.
    pub(crate) received: usize,
}

impl OperationCall {
    pub(crate) fn new(op: Operation, count: usize) -> Self {
        Self { op, reduce: ReduceOp::Sum, root: None, count, passed: count, received: 0 }
    }
}

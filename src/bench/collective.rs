//! Collectives that can be measured: the data that each moves, and how its bandwidth is calculated.
//! Sizes, counts and factors are those of nccl-tests (derived in its `PERFORMANCE.md`). Pure.

use std::fmt;

/// An operation of a group that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank receives the reduction of the data of all ranks.
    AllReduce,
    /// Every rank receives the parts of all ranks.
    AllGather,
    /// Every rank receives one part of the reduction.
    ReduceScatter,
    /// Every rank receives the data of the root.
    Broadcast,
    /// The root receives the reduction.
    Reduce,
    /// The root receives the parts of all ranks.
    Gather,
    /// Every rank receives one part of the data of the root.
    Scatter,
    /// Every rank receives one part from every rank.
    AllToAll,
    /// Every rank sends to the next rank and receives from the previous one.
    SendRecv,
}

/// Data that one operation of a size moves, per rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationShape {
    /// Number of elements in the table: those of one part if the data is divided into parts.
    pub count: usize,
    /// Number of elements of the input of a rank.
    pub input: usize,
    /// Number of elements of the separate output of a rank; 0 for in-place operations.
    pub output: usize,
    /// Number of bytes in the table: those of input or output, whichever is larger.
    pub bytes: usize,
}

impl Collective {
    /// All collectives, in the order of help texts.
    pub const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::SendRecv,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all-to-all",
            Self::SendRecv => "send-recv",
        }
    }

    /// Returns the collective with this name, in any common spelling: `all-reduce`, `all_reduce`,
    /// `Allreduce`.
    pub fn from_name(name: &str) -> Option<Self> {
        let plain = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
        let wanted = plain(name);
        Self::ALL.into_iter().find(|collective| plain(collective.name()) == wanted)
    }

    /// Whether input and output are the same memory.
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::AllReduce | Self::Broadcast | Self::Reduce)
    }

    /// Whether data is reduced.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether the operation has a root.
    pub fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Returns the data for a size of `bytes`, for `world` ranks and elements of `element_bytes` bytes; the
    /// size is rounded down to whole elements and parts of equal length.
    pub fn shape(self, bytes: u64, element_bytes: usize, world: usize) -> OperationShape {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX) / element_bytes;
        let (part, whole) = (count / world, count / world * world);
        let (count, input, output) = match self {
            Self::AllReduce | Self::Broadcast | Self::Reduce => (count, count, 0),
            Self::AllGather | Self::Gather => (part, part, whole),
            Self::ReduceScatter | Self::Scatter => (part, whole, part),
            Self::AllToAll => (part, whole, whole),
            Self::SendRecv => (count, count, count),
        };
        OperationShape { count, input, output, bytes: input.max(output) * element_bytes }
    }

    /// Returns the factor from algorithm bandwidth to bus bandwidth. If the links are the limit, bus
    /// bandwidth does not depend on the number of ranks.
    pub fn bus_factor(self, world: usize) -> f64 {
        let others = (world - 1) as f64 / world as f64;
        match self {
            Self::AllReduce => 2.0 * others,
            Self::AllGather
            | Self::ReduceScatter
            | Self::Gather
            | Self::Scatter
            | Self::AllToAll => others,
            Self::Broadcast | Self::Reduce | Self::SendRecv => 1.0,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collective_shapes_match_nccl_tests() {
        #[track_caller]
        fn check(collective: Collective, expect: [usize; 4]) {
            let OperationShape { count, input, output, bytes } = collective.shape(1030, 4, 4);
            assert_eq!([count, input, output, bytes], expect, "{collective}");
        }
        check(Collective::AllReduce, [257, 257, 0, 1028]);
        check(Collective::Broadcast, [257, 257, 0, 1028]);
        check(Collective::AllGather, [64, 64, 256, 1024]);
        check(Collective::ReduceScatter, [64, 256, 64, 1024]);
        check(Collective::AllToAll, [64, 256, 256, 1024]);
        check(Collective::SendRecv, [257, 257, 257, 1028]);
        for collective in Collective::ALL {
            let shape = collective.shape(1030, 4, 4);
            assert_eq!(shape.output == 0, collective.is_in_place(), "{collective}");
        }
    }

    #[test]
    fn collective_name_accepts_common_spellings() {
        for name in ["all-to-all", "all_to_all", "alltoall", "AllToAll"] {
            assert_eq!(Collective::from_name(name), Some(Collective::AllToAll), "{name}");
        }
        assert_eq!(Collective::from_name("all"), None);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "the factors are exact")]
    fn collective_bus_factors_match_nccl_tests() {
        assert_eq!(Collective::AllReduce.bus_factor(4), 1.5);
        assert_eq!(Collective::AllGather.bus_factor(4), 0.75);
        assert_eq!(Collective::Broadcast.bus_factor(4), 1.0);
        assert_eq!(Collective::AllReduce.bus_factor(1), 0.0);
    }
}

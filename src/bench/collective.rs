//! What is measured: what each collective moves, and how its bandwidth is counted. Sizes, counts and
//! factors are those of nccl-tests (`PERFORMANCE.md` there derives them). Pure.

use std::fmt;

/// An operation of a group that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Everybody gets the reduction of everybody's numbers.
    AllReduce,
    /// Everybody gets everybody's part.
    AllGather,
    /// Everybody gets a part of the reduction.
    ReduceScatter,
    /// Everybody gets the root's numbers.
    Broadcast,
    /// The root gets the reduction.
    Reduce,
    /// The root gets everybody's part.
    Gather,
    /// Everybody gets a part of the root's numbers.
    Scatter,
    /// Everybody gets a part from everybody.
    AllToAll,
    /// Everybody gives to the next rank and takes from the one before.
    SendRecv,
}

/// What one operation of a size moves, per rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Elements, as the table shows them: of a part where there are parts.
    pub count: usize,
    /// Elements that a rank gives.
    pub input: usize,
    /// Elements that it takes elsewhere than where it gives; 0 in place.
    pub output: usize,
    /// Bytes, as the table shows them: the greater of what is given and what is taken.
    pub bytes: usize,
}

impl Collective {
    /// All of them, in the order of help texts.
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

    /// The word for it on the command line.
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

    /// Of its name, in any of the ways in which it is written: `all-reduce`, `all_reduce`, `Allreduce`.
    pub fn of_name(name: &str) -> Option<Self> {
        let plain = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
        let wanted = plain(name);
        Self::ALL.into_iter().find(|collective| plain(collective.name()) == wanted)
    }

    /// Whether numbers are given and taken in the same place.
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::AllReduce | Self::Broadcast | Self::Reduce)
    }

    /// Whether numbers are combined.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one rank is another than the others.
    pub fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// What a size becomes when `world` ranks with elements of `element_bytes` share it: whole
    /// elements, parts of equal length.
    pub fn shape(self, bytes: u64, element_bytes: usize, world: usize) -> Shape {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX) / element_bytes;
        let (part, whole) = (count / world, count / world * world);
        let (count, input, output) = match self {
            Self::AllReduce | Self::Broadcast | Self::Reduce => (count, count, 0),
            Self::AllGather | Self::Gather => (part, part, whole),
            Self::ReduceScatter | Self::Scatter => (part, whole, part),
            Self::AllToAll => (part, whole, whole),
            Self::SendRecv => (count, count, count),
        };
        Shape { count, input, output, bytes: input.max(output) * element_bytes }
    }

    /// What algorithm bandwidth is multiplied with to become bus bandwidth, which does not depend on
    /// the number of ranks where the links are the limit.
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
    fn shapes_are_those_of_nccl_tests() {
        #[track_caller]
        fn check(collective: Collective, expect: (usize, usize, usize, usize)) {
            let Shape { count, input, output, bytes } = collective.shape(1030, 4, 4);
            assert_eq!((count, input, output, bytes), expect, "{collective}");
        }
        check(Collective::AllReduce, (257, 257, 0, 1028));
        check(Collective::Broadcast, (257, 257, 0, 1028));
        check(Collective::AllGather, (64, 64, 256, 1024));
        check(Collective::ReduceScatter, (64, 256, 64, 1024));
        check(Collective::AllToAll, (64, 256, 256, 1024));
        check(Collective::SendRecv, (257, 257, 257, 1028));
        for collective in Collective::ALL {
            let shape = collective.shape(1030, 4, 4);
            assert_eq!(shape.output == 0, collective.is_in_place(), "{collective}");
        }
    }

    #[test]
    fn names_are_written_in_many_ways() {
        for name in ["all-to-all", "all_to_all", "alltoall", "AllToAll"] {
            assert_eq!(Collective::of_name(name), Some(Collective::AllToAll), "{name}");
        }
        assert_eq!(Collective::of_name("all"), None);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "the factors are exact")]
    fn bus_factors() {
        assert_eq!(Collective::AllReduce.bus_factor(4), 1.5);
        assert_eq!(Collective::AllGather.bus_factor(4), 0.75);
        assert_eq!(Collective::Broadcast.bus_factor(4), 1.0);
        assert_eq!(Collective::AllReduce.bus_factor(1), 0.0);
    }
}

//! Options of a group.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use crate::runtime::dtype::element::ReduceOrder;

/// Default deadline of an operation: ten minutes, as in torch.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// Options of a group.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Deadline of every operation. An operation that needs a different deadline uses a group of its own
    /// ([`Group::split_with`](crate::runtime::Group::split_with)) or
    /// [`Work::wait_for`](crate::runtime::Work::wait_for).
    pub timeout: Duration,
    /// Number of TCP streams between two ranks of different nodes, 1 to 16; if the two ranks differ, the
    /// smaller number. `None`: the value of `REMUDA_STREAMS`, else 1 on loopback and 4 between machines,
    /// because networks limit the speed of one stream.
    pub streams: Option<NonZero<u8>>,
    /// Whether rounds of large all-reduces between nodes overlap; the same on all ranks. `None`: between
    /// machines they do, on loopback they do not, because overlapping is slower there.
    pub overlap: Option<bool>,
    /// Order in which all-reduces combine values; the same on all ranks.
    pub order: ReduceOrder,
    /// Directory for the records of a failure; nothing is written if it does not exist. `None`: the value of
    /// `REMUDA_RUN_PATH`, the directory of the run where remuda has started the worker.
    pub run_dir: Option<PathBuf>,
}

/// Sizes in bytes (of one rank's data) at which operations of a group switch algorithms.
///
/// They are the same on every machine, because results must not depend on a measurement; on the machines
/// that were measured, the best sizes are close to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Up to this size, data is exchanged together with the flags, with one barrier; on one node only.
    pub eager_bytes: Option<usize>,
    /// Data outside of the group's memory ([`Group::alloc`](crate::runtime::Group::alloc)) is processed in
    /// rounds of this size.
    pub round_bytes: usize,
    /// Up to this size, every node reduces all data after one exchange with each other node; above it,
    /// every rank reduces a slice. `None` if one algorithm is used for all sizes.
    pub short_bytes: Option<usize>,
    /// Settings of the communication with other nodes, if there are any.
    pub between_nodes: Option<BetweenNodes>,
}

/// Settings of a rank's communication with other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BetweenNodes {
    /// Largest number of TCP streams of a connection; the smaller of the two sides' settings is used.
    pub streams: usize,
    /// Whether rounds of large all-reduces overlap.
    pub overlap: bool,
    /// Order in which all-reduces combine values.
    pub order: ReduceOrder,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            streams: None,
            overlap: None,
            order: ReduceOrder::Canonical,
            run_dir: None,
        }
    }
}

/// Largest number of streams between two ranks.
pub(crate) const STREAMS_MAX: usize = 16;

//! [`Traffic`]: how many operations a group has run, and how many bytes they bring to a rank.

use std::ops::Sub;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::runtime::comm::core::operation::{Operation, OperationCall};

/// Number of kinds of operations.
const KINDS: usize = Operation::ALL.len();

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationTraffic {
    /// Number of operations.
    pub calls: u64,
    /// Bytes that this rank must receive from other ranks in these operations.
    pub bytes: u64,
}

/// Operations of a group by kind, as one rank counts them; the difference of two readings is that of the
/// operations between them.
///
/// Bytes are those that the rank must receive from other ranks to have its result, whatever the algorithm and the
/// transport are. With `W` ranks and `n` bytes of data they are:
///
/// | operation | bytes |
/// |---|---|
/// | all-reduce of `n` | `2 · (W - 1) / W · n` |
/// | reduce-scatter with an input of `n` | `(W - 1) / W · n` |
/// | all-gather with an output of `n` | `(W - 1) / W · n` |
/// | broadcast, scatter of parts of `n` | `n`, at the root none |
/// | reduce of `n`, gather of parts of `n` | `n`, `(W - 1) · n` at the root, elsewhere none |
/// | reduce-scatter of pieces with an output of `n` | `n` for each piece of another rank |
/// | messages, all-to-all | the bytes received from other ranks |
/// | barrier, groups of some ranks | none |
///
/// ```
/// # use remuda::runtime::{Error, Group, Operation, ReduceOp, Traffic};
/// let results = Group::on_threads(4, |group| {
///     let before = group.traffic();
///     group.all_reduce(&mut [1.0f32; 100], ReduceOp::Sum)?;
///     Ok(group.traffic() - before)
/// })?;
/// let mut plan = Traffic::default();
/// plan.record(Operation::AllReduce, 2 * Traffic::share_of_others(400, 4));
/// assert_eq!(results, [plan; 4]);
/// assert_eq!(plan.total().bytes, 600);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    kinds: [OperationTraffic; KINDS],
}

impl Traffic {
    /// Returns the operations of one kind.
    pub fn of(&self, op: Operation) -> OperationTraffic {
        self.kinds[index(op)]
    }

    /// Returns the operations of all kinds.
    pub fn total(&self) -> OperationTraffic {
        let calls = self.kinds.iter().map(|kind| kind.calls).sum();
        OperationTraffic { calls, bytes: self.kinds.iter().map(|kind| kind.bytes).sum() }
    }

    /// Adds an operation, for a plan that is compared with what a group has counted.
    pub fn record(&mut self, op: Operation, bytes: u64) {
        let kind = &mut self.kinds[index(op)];
        kind.calls += 1;
        kind.bytes += bytes;
    }

    /// Returns the part of `whole` bytes that belongs to the other of `world_size` ranks:
    /// `(world_size - 1) / world_size · whole`, rounded down.
    pub fn share_of_others(whole: u64, world_size: usize) -> u64 {
        let world = world_size.max(1) as u128;
        (u128::from(whole) * (world - 1) / world) as u64
    }
}

impl Sub for Traffic {
    type Output = Self;

    /// Returns the operations since an earlier reading.
    fn sub(mut self, earlier: Self) -> Self {
        for (kind, earlier) in self.kinds.iter_mut().zip(earlier.kinds) {
            kind.calls -= earlier.calls;
            kind.bytes -= earlier.bytes;
        }
        self
    }
}

/// Position of a kind; codes of operations begin at 1.
fn index(op: Operation) -> usize {
    op as usize - 1
}

/// Counters of a group, which any thread can read while an operation runs.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounters {
    calls: [AtomicU64; KINDS],
    bytes: [AtomicU64; KINDS],
}

impl TrafficCounters {
    /// Counts an operation.
    pub(crate) fn record(&self, op: Operation, bytes: u64) {
        self.calls[index(op)].fetch_add(1, Relaxed);
        self.bytes[index(op)].fetch_add(bytes, Relaxed);
    }

    /// The operations so far.
    pub(crate) fn read(&self) -> Traffic {
        let mut traffic = Traffic::default();
        for (at, kind) in traffic.kinds.iter_mut().enumerate() {
            kind.calls = self.calls[at].load(Relaxed);
            kind.bytes = self.bytes[at].load(Relaxed);
        }
        traffic
    }
}

impl OperationCall {
    /// Bytes that a rank of `world` ranks must receive in this call; see [`Traffic`].
    pub(crate) fn received_bytes(self, element_bytes: usize, rank: usize, world: usize) -> u64 {
        let bytes = |elements: usize| (elements * element_bytes) as u64;
        let own = bytes(self.count);
        let others = world as u64 - 1;
        let is_root = self.root == Some(rank);
        match self.op {
            Operation::AllReduce => 2 * Traffic::share_of_others(own, world),
            Operation::ReduceScatter => Traffic::share_of_others(own, world),
            // The count of these is that of one rank's part.
            Operation::AllGather => others * own,
            Operation::Gather if is_root => others * own,
            Operation::Reduce if is_root => others.min(1) * own,
            Operation::Broadcast | Operation::Scatter if !is_root => own,
            Operation::AllToAll
            | Operation::Send
            | Operation::Recv
            | Operation::SendRecv
            | Operation::Exchange
            | Operation::ReduceScatterOfPieces => bytes(self.received),
            // Rooted operations at their other ranks, and those without data.
            Operation::Gather
            | Operation::Reduce
            | Operation::Broadcast
            | Operation::Scatter
            | Operation::Barrier
            | Operation::MonitoredBarrier
            | Operation::Split
            | Operation::GroupOf => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_operations_have_consecutive_codes() {
        for (at, op) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(index(op), at, "{op}");
        }
    }

    #[test]
    fn received_bytes_follow_the_formulas() {
        #[track_caller]
        fn check(op: Operation, root: Option<usize>, expect: [u64; 3]) {
            let call = OperationCall { root, received: 5, ..OperationCall::new(op, 12) };
            let found = [(1, 4), (0, 4), (0, 1)].map(|(rank, world)| {
                let root = root.map(|root| root.min(world - 1));
                OperationCall { root, ..call }.received_bytes(8, rank, world)
            });
            assert_eq!(found, expect, "{op}: at the root, elsewhere, alone");
        }
        check(Operation::AllReduce, None, [144, 144, 0]);
        check(Operation::ReduceScatter, None, [72, 72, 0]);
        check(Operation::AllGather, None, [288, 288, 0]);
        check(Operation::Broadcast, Some(1), [0, 96, 0]);
        check(Operation::Scatter, Some(1), [0, 96, 0]);
        check(Operation::Gather, Some(1), [288, 0, 0]);
        check(Operation::Reduce, Some(1), [96, 0, 0]);
        check(Operation::AllToAll, None, [40, 40, 40]);
        check(Operation::ReduceScatterOfPieces, None, [40, 40, 40]);
        check(Operation::Barrier, None, [0, 0, 0]);
    }

    #[test]
    fn difference_of_readings_is_what_was_counted_between_them() {
        let counters = TrafficCounters::default();
        counters.record(Operation::AllGather, 7);
        let before = counters.read();
        counters.record(Operation::AllGather, 5);
        counters.record(Operation::Barrier, 0);
        let mut plan = Traffic::default();
        plan.record(Operation::Barrier, 0);
        plan.record(Operation::AllGather, 5);
        assert_eq!(counters.read() - before, plan);
        assert_eq!(plan.of(Operation::AllGather), OperationTraffic { calls: 1, bytes: 5 });
        assert_eq!(plan.total(), OperationTraffic { calls: 2, bytes: 5 });
    }

    #[test]
    fn share_of_others_is_exact_for_any_size() {
        assert_eq!(Traffic::share_of_others(u64::MAX, 1), 0);
        assert_eq!(Traffic::share_of_others(u64::MAX - 3, 4), (u64::MAX - 3) / 4 * 3);
        assert_eq!(Traffic::share_of_others(10, 4), 7);
    }
}

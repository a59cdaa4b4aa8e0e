//! The executor: runs the schedule of every operation over the memory of the node.
//!
//! A large operation is a series of rounds of [`STAGING_BYTES`]. In a round every rank of the node
//! shows a window: a range of its buffer where that lies in the segment, else a staged copy. Then
//! each rank folds its slice over all windows, block by block, and writes the result back into all
//! of them. Small operations travel beside the flags and meet once.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Rank, clock};
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::error::{Cause, CollectiveError, Fingerprint, Operation};
use crate::runtime::node::{LocalNode, Patience, Roster};
use crate::runtime::schedule::{blocks, rounds, slice};
use crate::runtime::shm::{Alarm, EAGER_BYTES, STAGING_BYTES, Segment, Spin};
use crate::runtime::shm_window::{Window, Workspace, fold_windows};
use crate::runtime::tree::Fold;

/// Where the numbers of a call lie.
#[doc(hidden)]
pub enum Memory<'a, T> {
    /// Anywhere; staged through the segment.
    Slice(&'a mut [T]),
    /// In the segment.
    Shared(SharedMemory<T>),
}

/// A range of a buffer of the segment.
#[doc(hidden)]
pub struct SharedMemory<T>(pub(crate) Window<T>);

impl<T: Element> Memory<'_, T> {
    fn len(&self) -> usize {
        match self {
            Self::Slice(values) => values.len(),
            Self::Shared(SharedMemory(window)) => window.len(),
        }
    }

    /// The window of a round: ours, or a copy in `staging`.
    fn stage_in(&self, range: &Range<usize>, staging: &Window<T>) -> Window<T> {
        match self {
            Self::Slice(values) => {
                staging.write(0, &values[range.clone()]);
                staging.part(&(0..range.len()))
            }
            Self::Shared(SharedMemory(window)) => window.part(range),
        }
    }

    /// Takes the result of a round over; in the segment it is in its place already.
    fn stage_out(&mut self, range: &Range<usize>, staging: &Window<T>) {
        match self {
            Self::Slice(values) => staging.read(0, &mut values[range.clone()]),
            Self::Shared(_) => {}
        }
    }

    /// Takes all of `source` over, from position `at` on.
    fn copy_from(&mut self, at: usize, source: &Window<T>) {
        match self {
            Self::Slice(values) => source.read(0, &mut values[at..at + source.len()]),
            Self::Shared(SharedMemory(window)) => {
                window.part(&(at..at + source.len())).copy_from(source);
            }
        }
    }

    fn write(&mut self, at: usize, block: &[T]) {
        match self {
            Self::Slice(values) => values[at..at + block.len()].copy_from_slice(block),
            Self::Shared(SharedMemory(window)) => window.write(at, block),
        }
    }
}

/// What is done to a sum before anybody sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Keep,
    Divide(u64),
}

impl Finish {
    fn apply<T: Element>(self, values: &mut [T]) {
        match self {
            Self::Keep => {}
            Self::Divide(parts) => T::divide(values, parts),
        }
    }
}

/// One operation as the caller asked for it.
#[derive(Clone, Copy, Debug)]
struct Call {
    op: Operation,
    reduce: ReduceOp,
    root: usize,
    count: usize,
}

/// Runs operations one after the other; behind a lock of its group.
pub(crate) struct Engine {
    node: LocalNode,
    roster: Arc<Roster>,
    timeout: Duration,
    pub(crate) spin: Spin,
    calls: u64,
    rounds: u64,
    failed: Option<Cause>,
    workspace: Workspace,
    fold: Fold,
}

impl Engine {
    pub(crate) fn new(roster: Arc<Roster>, segment: Arc<Segment>, timeout: Duration) -> Self {
        Self {
            spin: Spin::for_ranks(roster.neighbours().len()),
            fold: Fold::of(roster.placement.world_size()),
            node: LocalNode::new(roster.clone(), segment),
            roster,
            timeout,
            calls: 0,
            rounds: 0,
            failed: None,
            workspace: Workspace::default(),
        }
    }

    fn world(&self) -> usize {
        self.roster.placement.world_size()
    }

    /// Makes every operation of this group fail, here and elsewhere, those under way included.
    pub(crate) fn alarm(&mut self, alarm: Alarm) {
        self.node.segment.raise_alarm(&alarm);
        self.failed.get_or_insert(Cause::Aborted { by: alarm.by, reason: alarm.reason });
    }

    /// Counts, sets the deadline, and turns a failure into an error that ends the group.
    fn run<T: Element>(
        &mut self,
        call: Call,
        body: impl FnOnce(&mut Self, Call, Patience) -> Result<(), Cause>,
    ) -> Result<(), CollectiveError> {
        self.calls += 1;
        let patience = Patience { deadline: clock::now() + self.timeout, spin: self.spin };
        let outcome = match &self.failed {
            Some(cause) => Err(cause.clone()),
            None => body(self, call, patience),
        };
        outcome.map_err(|cause| {
            self.give_up(&cause);
            let bytes = (call.count * size_of::<T>()) as u64;
            let rank = Rank(self.roster.rank as u32);
            CollectiveError { op: call.op, seq: self.calls, bytes, rank, cause }
        })
    }

    /// An operation that failed half way leaves the ranks at different places: nothing can follow.
    fn give_up(&mut self, cause: &Cause) {
        if self.failed.is_some() {
            return;
        }
        let lost = match cause {
            Cause::PeerLost { rank, .. } => Some(*rank),
            _ => None,
        };
        let by = Rank(self.roster.rank as u32);
        self.node.segment.raise_alarm(&Alarm { by, lost, reason: cause.to_string() });
        self.failed = Some(cause.clone());
    }

    fn fingerprint<T: Element>(&mut self, call: Call) -> Fingerprint {
        self.rounds += 1;
        Fingerprint {
            op: call.op,
            dtype: T::DTYPE,
            reduce: call.reduce,
            root: Rank(call.root as u32),
            count: call.count as u64,
            seq: self.rounds,
        }
    }

    /// Opens a round: every rank's window, in local order.
    fn enter<T: Element>(
        &mut self,
        call: Call,
        ours: &Window<T>,
        patience: Patience,
    ) -> Result<Vec<Window<T>>, Cause> {
        let fingerprint = self.fingerprint::<T>(call);
        let segment = self.node.segment.clone();
        let offsets = self.node.enter(fingerprint, ours.offset(), patience)?;
        let windows = offsets.iter().map(|offset| Window::new(&segment, *offset, ours.len()));
        windows.collect::<Option<_>>().ok_or_else(|| {
            Cause::Backend("a peer's window lies outside the shared memory".to_owned())
        })
    }

    fn staging<T: Element>(&self) -> Window<T> {
        let offset = self.node.segment.staging_offset(self.node.me());
        Window::new(&self.node.segment, offset, STAGING_BYTES / size_of::<T>())
            .expect("the layout keeps staging areas aligned and inside")
    }

    /// Everybody gets the reduction of everybody's numbers.
    pub(crate) fn all_reduce<T: Element>(
        &mut self,
        mut memory: Memory<'_, T>,
        reduce: ReduceOp,
        finish: Finish,
    ) -> Result<(), CollectiveError> {
        let finish = match reduce {
            ReduceOp::Avg => Finish::Divide(self.world() as u64),
            _ => finish,
        };
        let call = Call { op: Operation::AllReduce, reduce, root: 0, count: memory.len() };
        self.run::<T>(call, |engine, call, patience| {
            match call.count * size_of::<T>() <= EAGER_BYTES {
                true => engine.all_reduce_eager(call, &mut memory, finish, patience),
                false => engine.all_reduce_rounds(call, &mut memory, finish, patience),
            }
        })
    }

    /// Everybody folds everything: one meeting, and the slots are used in turn.
    fn all_reduce_eager<T: Element>(
        &mut self,
        call: Call,
        memory: &mut Memory<'_, T>,
        finish: Finish,
        patience: Patience,
    ) -> Result<(), Cause> {
        let offset = self.node.segment.eager_offset(self.node.me(), self.rounds + 1);
        let slot = Window::new(&self.node.segment, offset, call.count)
            .expect("the layout keeps eager slots aligned and inside");
        match memory {
            Memory::Slice(values) => slot.write(0, values),
            Memory::Shared(SharedMemory(window)) => slot.copy_from(window),
        }
        let windows = self.enter(call, &slot, patience)?;
        for block in blocks(0..call.count, Workspace::block::<T>()) {
            let sum = fold_windows(&mut self.workspace, &self.fold, call.reduce, &windows, &block);
            finish.apply(sum);
            memory.write(block.start, sum);
        }
        Ok(())
    }

    fn all_reduce_rounds<T: Element>(
        &mut self,
        call: Call,
        memory: &mut Memory<'_, T>,
        finish: Finish,
        patience: Patience,
    ) -> Result<(), Cause> {
        let staging = self.staging::<T>();
        for round in rounds(call.count, staging.len()) {
            let ours = memory.stage_in(&round, &staging);
            let windows = self.enter(call, &ours, patience)?;
            let ours = slice(round.len(), self.world(), self.roster.rank);
            self.reduce_slice(call.reduce, finish, &windows, ours, &windows);
            self.node.meet(patience)?;
            memory.stage_out(&round, &staging);
        }
        Ok(())
    }

    /// Folds a slice over all windows and writes the result to the same place of the targets.
    fn reduce_slice<T: Element>(
        &mut self,
        reduce: ReduceOp,
        finish: Finish,
        windows: &[Window<T>],
        slice: Range<usize>,
        targets: &[Window<T>],
    ) {
        for block in blocks(slice, Workspace::block::<T>()) {
            let sum = fold_windows(&mut self.workspace, &self.fold, reduce, windows, &block);
            finish.apply(sum);
            for target in targets {
                target.write(block.start, sum);
            }
        }
    }

    /// Nobody returns before everybody has called.
    pub(crate) fn barrier(&mut self) -> Result<(), CollectiveError> {
        let call = Call { op: Operation::Barrier, reduce: ReduceOp::Sum, root: 0, count: 0 };
        self.run::<u8>(call, |engine, call, patience| {
            let nothing = engine.staging::<u8>().part(&(0..0));
            engine.enter(call, &nothing, patience).map(drop)
        })
    }

    /// Everybody gets the root's numbers.
    pub(crate) fn broadcast<T: Element>(
        &mut self,
        mut memory: Memory<'_, T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        let count = memory.len();
        let call = Call { op: Operation::Broadcast, reduce: ReduceOp::Sum, root, count };
        self.run::<T>(call, |engine, call, patience| {
            let staging = engine.staging::<T>();
            for round in rounds(call.count, staging.len()) {
                engine.broadcast_round(call, &mut memory, &round, &staging, patience)?;
            }
            Ok(())
        })
    }

    fn broadcast_round<T: Element>(
        &mut self,
        call: Call,
        memory: &mut Memory<'_, T>,
        round: &Range<usize>,
        staging: &Window<T>,
        patience: Patience,
    ) -> Result<(), Cause> {
        let ours = match call.root == self.roster.rank {
            true => memory.stage_in(round, staging),
            false => staging.part(&(0..round.len())),
        };
        let windows = self.enter(call, &ours, patience)?;
        if call.root != self.roster.rank {
            let source = &windows[self.roster.placement.local_of(call.root)];
            memory.copy_from(round.start, source);
        }
        self.node.meet(patience)
    }

    /// Everybody gets everybody's numbers, in rank order.
    pub(crate) fn all_gather<T: Element>(
        &mut self,
        ours: &[T],
        all: &mut [T],
    ) -> Result<(), CollectiveError> {
        let count = ours.len();
        let call = Call { op: Operation::AllGather, reduce: ReduceOp::Sum, root: 0, count };
        self.run::<T>(call, |engine, call, patience| {
            let staging = engine.staging::<T>();
            for round in rounds(call.count, staging.len()) {
                staging.write(0, &ours[round.clone()]);
                let window = staging.part(&(0..round.len()));
                let windows = engine.enter(call, &window, patience)?;
                for (rank, window) in engine.roster.neighbours().iter().zip(&windows) {
                    let start = rank * count + round.start;
                    window.read(0, &mut all[start..start + round.len()]);
                }
                engine.node.meet(patience)?;
            }
            Ok(())
        })
    }

    /// Rank `r` gets part `r` of the reduction of everybody's numbers.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        all: &[T],
        ours: &mut [T],
        reduce: ReduceOp,
    ) -> Result<(), CollectiveError> {
        let finish = match reduce {
            ReduceOp::Avg => Finish::Divide(self.world() as u64),
            _ => Finish::Keep,
        };
        let (world, part) = (self.world(), ours.len());
        let call = Call { op: Operation::ReduceScatter, reduce, root: 0, count: all.len() };
        self.run::<T>(call, |engine, call, patience| {
            let staging = engine.staging::<T>();
            for round in rounds(part, staging.len() / world) {
                for rank in 0..world {
                    let start = rank * part + round.start;
                    staging.write(rank * round.len(), &all[start..start + round.len()]);
                }
                let window = staging.part(&(0..world * round.len()));
                let windows = engine.enter(call, &window, patience)?;
                let start = engine.roster.rank * round.len();
                let slice = start..start + round.len();
                let me = engine.node.me();
                let target = std::slice::from_ref(&windows[me]);
                engine.reduce_slice(call.reduce, finish, &windows, slice, target);
                window.read(start, &mut ours[round.clone()]);
                engine.node.meet(patience)?;
            }
            Ok(())
        })
    }
}

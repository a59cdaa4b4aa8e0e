//! Collectives of a group on host memory.
//!
//! A large operation is a series of rounds of
//! [`staging_bytes`](crate::runtime::shm::staging_bytes). In a round every rank of the node
//! publishes a window: a range of its buffer if that lies in the segment, otherwise a staged copy.
//! Then each rank processes its slice over all windows, block by block; with other nodes it
//! exchanges data by [`across`](crate::runtime::across). Small reductions on one node are stored
//! beside the flags and need only one barrier.

use std::ops::Range;

use crate::runtime::across::Round;
use crate::runtime::cells::BufferPlace;
use crate::runtime::element::{Element, ReduceOp, ReduceOrder};
use crate::runtime::engine::{Engine, OperationCall};
use crate::runtime::error::{Cause, CollectiveError, Operation};
use crate::runtime::memory::{CallMemory, Finish};
use crate::runtime::node::Deadline;
use crate::runtime::parts::part_len_max;
use crate::runtime::schedule::{blocks, rounds, slice};
use crate::runtime::shm::EAGER_BYTES;
use crate::runtime::shm_window::{Window, Workspace, fold_windows};

/// Algorithm of a reduction.
enum Algorithm {
    /// All ranks read all data beside the flags.
    Eager,
    /// One round after the other.
    Rounds,
    /// Several rounds at once, with other nodes.
    Overlapping,
    /// One round after the other, around a ring of nodes.
    Ring,
}

impl Engine {
    fn finish(&self, reduce: ReduceOp, otherwise: Finish) -> Finish {
        match reduce {
            ReduceOp::Avg => Finish::Divide(self.world() as u64),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => otherwise,
        }
    }

    /// Every rank gets the reduction of all ranks' data.
    pub(crate) fn all_reduce<T: Element>(
        &mut self,
        memory: CallMemory<'_, T>,
        reduce: ReduceOp,
        finish: Finish,
    ) -> Result<(), CollectiveError> {
        let call =
            OperationCall { reduce, ..OperationCall::new(Operation::AllReduce, memory.len()) };
        self.reduce_any(call, memory, finish)
    }

    /// The root gets the reduction of all ranks' data; the data of other ranks does not change.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        memory: CallMemory<'_, T>,
        reduce: ReduceOp,
        root: usize,
    ) -> Result<(), CollectiveError> {
        let call = OperationCall::new(Operation::Reduce, memory.len());
        self.reduce_any(OperationCall { reduce, root: Some(root), ..call }, memory, Finish::Keep)
    }

    /// Reduces for the root of the call, or for all ranks.
    fn reduce_any<T: Element>(
        &mut self,
        call: OperationCall,
        mut memory: CallMemory<'_, T>,
        finish: Finish,
    ) -> Result<(), CollectiveError> {
        let finish = self.finish(call.reduce, finish);
        self.run::<T>(call, |engine, call, patience| {
            memory.check_home(&engine.node.segment)?;
            match engine.way_of::<T>(call) {
                Algorithm::Eager => engine.reduce_eager(call, &mut memory, finish, patience),
                Algorithm::Rounds => engine.reduce_rounds(call, &mut memory, finish, patience),
                Algorithm::Overlapping => {
                    engine.all_reduce_overlapping(call, &mut memory, finish, patience)
                }
                Algorithm::Ring => engine.all_reduce_in_ring(call, &mut memory, finish, patience),
            }
        })
    }

    /// Selects the algorithm; equal on all ranks, because it depends only on the call and on the
    /// placement.
    fn way_of<T: Element>(&self, call: OperationCall) -> Algorithm {
        match &self.across {
            None if call.count * size_of::<T>() <= EAGER_BYTES => Algorithm::Eager,
            Some(across) if call.root.is_none() => {
                let is_short = across.is_short(call.count * size_of::<T::Sum>());
                match self.order_of(call.op) {
                    _ if is_short => Algorithm::Rounds,
                    ReduceOrder::Canonical => Algorithm::Overlapping,
                    ReduceOrder::Any => Algorithm::Ring,
                }
            }
            _ => Algorithm::Rounds,
        }
    }

    fn is_for_us(&self, call: OperationCall) -> bool {
        call.root.is_none_or(|root| root == self.roster.rank)
    }

    /// Every rank that needs the result reduces all data: one barrier, and the slots are used in turn.
    fn reduce_eager<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        finish: Finish,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let offset = self.node.segment.eager_offset(self.node.me(), self.rounds + 1);
        let slot = Window::new(&self.node.segment, offset, call.count)
            .expect("the layout keeps eager slots aligned and inside");
        memory.copy_to(&(0..call.count), &slot);
        let Round { windows, .. } = self.enter(call, &slot, patience)?;
        if !self.is_for_us(call) {
            return Ok(());
        }
        self.fold_here(call.reduce, finish, &windows, 0..call.count, |at, sums| {
            memory.write(at, sums);
        });
        Ok(())
    }

    /// Folds a slice of the windows of this node, block by block, and passes each result to `put`
    /// with its position.
    fn fold_here<T: Element>(
        &mut self,
        reduce: ReduceOp,
        finish: Finish,
        windows: &[Window<T>],
        slice: Range<usize>,
        mut put: impl FnMut(usize, &[T]),
    ) {
        let mut room = Vec::new();
        for block in blocks(slice, Workspace::block::<T>()) {
            let sum = fold_windows(&mut self.workspace, &self.fold, reduce, windows, &block);
            finish.apply(sum);
            put(block.start, T::narrow(sum, &mut room));
        }
    }

    fn reduce_rounds<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        finish: Finish,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let staging = self.staging::<T>();
        let mut done = 0;
        loop {
            let range = done..call.count.min(done + staging.len());
            let place = memory.stage_in(&range, &staging);
            let is_one_node = self.across.is_none();
            let left = call.count - done;
            // If no rank has staged its data, a round has no limit. All ranks of the node see the
            // same places, so they agree on it; other nodes do not see them.
            let len = |places: &[BufferPlace]| {
                let is_direct = |place: &BufferPlace| matches!(place, BufferPlace::Direct(_));
                if is_one_node && places.iter().all(is_direct) { left } else { range.len() }
            };
            let round = self.enter_at::<T>(call, place, len, patience)?;
            match call.root {
                _ if is_one_node => self.reduce_slice(call, finish, &round),
                None => self.all_reduce_short(call.reduce, finish, &round)?,
                Some(root) => self.reduce_across(call.reduce, root, finish, &round)?,
            }
            self.meet(patience)?;
            if self.is_for_us(call) {
                memory.stage_out(&range, &staging);
            }
            done += round.len;
            if done == call.count {
                return Ok(());
            }
        }
    }

    /// Folds this rank's slice over all windows and writes the result to the same place in the
    /// root's window, or in all windows.
    fn reduce_slice<T: Element>(&mut self, call: OperationCall, finish: Finish, round: &Round<T>) {
        let slice = slice(round.len, self.world(), self.roster.rank);
        let windows = &round.windows;
        let targets = call.root.map_or(&windows[..], |root| &windows[root..=root]);
        self.fold_here(call.reduce, finish, windows, slice, |at, sums| {
            for target in targets {
                target.write(at, sums);
            }
        });
    }

    /// Reduces with other nodes; for a reduction to a root, the ranks of its node share the work.
    fn reduce_across<T: Element>(
        &mut self,
        reduce: ReduceOp,
        root: usize,
        finish: Finish,
        round: &Round<T>,
    ) -> Result<(), Cause> {
        let Some(across) = &mut self.across else { return Ok(()) };
        let placement = self.roster.placement.clone();
        let home = placement.node_of(root);
        let owners = placement.ranks_of(home).len();
        let slice_of = |rank: usize| {
            let is_owner = placement.node_of(rank) == home;
            if is_owner { slice(round.len, owners, placement.local_of(rank)) } else { 0..0 }
        };
        let mut sum = across.reduce(round, reduce, &slice_of, &mut self.workspace, &self.node)?;
        if self.roster.node() == home {
            finish.apply(&mut sum);
            let target = &round.windows[placement.local_of(root)];
            target.write(slice_of(self.roster.rank).start, T::narrow(&sum, &mut Vec::new()));
        }
        across.rooms().put(sum);
        Ok(())
    }

    /// Reduces short data, which the first rank of every node folds.
    fn all_reduce_short<T: Element>(
        &mut self,
        reduce: ReduceOp,
        finish: Finish,
        round: &Round<T>,
    ) -> Result<(), Cause> {
        let Some(across) = &mut self.across else { return Ok(()) };
        let sum = across.reduce_everywhere(round, reduce, &mut self.workspace, &self.node)?;
        let Some(mut sum) = sum else { return Ok(()) };
        finish.apply(&mut sum);
        let mut narrowed = Vec::new();
        let values = T::narrow(&sum, &mut narrowed);
        round.windows.iter().for_each(|window| window.write(0, values));
        across.rooms().put(sum);
        Ok(())
    }

    /// Rank `r` gets part `r` of the reduction of all ranks' data.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        all: &[T],
        ours: &mut [T],
        reduce: ReduceOp,
    ) -> Result<(), CollectiveError> {
        let finish = self.finish(reduce, Finish::Keep);
        let (world, part) = (self.world(), ours.len());
        let call =
            OperationCall { reduce, ..OperationCall::new(Operation::ReduceScatter, all.len()) };
        self.run::<T>(call, |engine, call, patience| {
            let staging = engine.staging::<T>();
            for range in rounds(part, part_len_max(&staging, world)?) {
                for rank in 0..world {
                    let start = rank * part + range.start;
                    staging.write(rank * range.len(), &all[start..start + range.len()]);
                }
                let window = staging.part(&(0..world * range.len()));
                let round = engine.enter(call, &window, patience)?;
                engine.reduce_part(reduce, finish, &round, &mut ours[range])?;
                engine.meet(patience)?;
            }
            Ok(())
        })
    }

    /// One round of [`Self::reduce_scatter`]: windows contain, for every rank, a part as long as
    /// `ours`.
    fn reduce_part<T: Element>(
        &mut self,
        reduce: ReduceOp,
        finish: Finish,
        round: &Round<T>,
        ours: &mut [T],
    ) -> Result<(), Cause> {
        let part = ours.len();
        let slice_of = |rank: usize| rank * part..(rank + 1) * part;
        if let Some(across) = &mut self.across {
            let workspace = &mut self.workspace;
            let mut sum = across.reduce(round, reduce, &slice_of, workspace, &self.node)?;
            finish.apply(&mut sum);
            ours.copy_from_slice(T::narrow(&sum, &mut Vec::new()));
            across.rooms().put(sum);
            return Ok(());
        }
        let slice = slice_of(self.roster.rank);
        let start = slice.start;
        self.fold_here(reduce, finish, &round.windows, slice, |at, sums| {
            ours[at - start..][..sums.len()].copy_from_slice(sums);
        });
        Ok(())
    }

    /// The window on this node that contains a rank's part.
    pub(super) fn window_of<'r, T>(&self, round: &'r Round<T>, rank: usize) -> &'r Window<T> {
        let placement = &self.roster.placement;
        let holder = placement.helper(self.roster.node(), rank);
        &round.windows[placement.local_of(holder)]
    }

    /// Every rank gets the root's data.
    pub(crate) fn broadcast<T: Element>(
        &mut self,
        mut memory: CallMemory<'_, T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        let call = OperationCall {
            root: Some(root),
            ..OperationCall::new(Operation::Broadcast, memory.len())
        };
        self.run::<T>(call, |engine, call, patience| {
            memory.check_home(&engine.node.segment)?;
            let staging = engine.staging::<T>();
            for range in rounds(call.count, staging.len()) {
                engine.broadcast_round(call, root, &mut memory, &range, &staging, patience)?;
            }
            Ok(())
        })
    }

    fn broadcast_round<T: Element>(
        &mut self,
        call: OperationCall,
        root: usize,
        memory: &mut CallMemory<'_, T>,
        range: &Range<usize>,
        staging: &Window<T>,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let rank = self.roster.rank;
        let place = if root == rank {
            memory.stage_in(range, staging)
        } else {
            BufferPlace::Staged(staging.offset())
        };
        let round = self.enter_at::<T>(call, place, |_| range.len(), patience)?;
        if let Some(across) = &mut self.across {
            let ours = &round.windows[self.node.me()];
            let mut values = across.rooms().take(range.len());
            if root == rank {
                ours.read(0, &mut values);
            }
            across.broadcast(&round, root, &mut values, &self.node)?;
            if root != rank && self.roster.placement.helper(self.roster.node(), root) == rank {
                ours.write(0, &values);
            }
            across.rooms().put(values);
            self.meet(patience)?;
        }
        if root != rank {
            memory.copy_from(range.start, self.window_of(&round, root));
        }
        self.meet(patience)
    }

    /// Waits until all ranks have called it.
    pub(crate) fn barrier(&mut self) -> Result<(), CollectiveError> {
        self.agree::<u8>(OperationCall::new(Operation::Barrier, 0))
    }

    /// Waits until all ranks have made this call; fails if a rank has made a different call.
    pub(crate) fn agree<T: Element>(&mut self, call: OperationCall) -> Result<(), CollectiveError> {
        self.run::<T>(call, |engine, call, patience| {
            let nothing = engine.staging::<T>().part(&(0..0));
            let round = engine.enter(call, &nothing, patience)?;
            let Some(across) = &mut engine.across else { return Ok(()) };
            across.greet(round.fingerprint, &engine.node, patience)?;
            engine.meet(patience)
        })
    }
}

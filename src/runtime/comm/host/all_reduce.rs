//! Reductions on host memory. `select` chooses the algorithm.
//!
//! A large operation is a series of rounds of
//! [`staging_bytes`](crate::runtime::comm::shm::segment::staging_bytes). In a round every rank of the node
//! publishes a window: a range of its buffer if that lies in the segment, otherwise a staged copy.
//! Then each rank processes its slice over all windows, block by block; with other nodes it
//! exchanges data by [`all_reduce_between_nodes`](crate::runtime::comm::host::all_reduce_between_nodes).
//! Small reductions on one node are stored beside the flags and need only one barrier.

use std::ops::Range;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::region::{CallMemory, PostOp};
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::host::select::{Algorithm, ReductionCase};
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::comm::shm::fold::{Workspace, fold_windows};
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::{blocks, slice};

impl HostBackend {
    /// Selects the operation on the sums: the division of a mean, or else `default`.
    pub(super) fn post_op(&self, reduce: ReduceOp, default: PostOp) -> PostOp {
        match reduce {
            ReduceOp::Avg => PostOp::Divide(self.world() as u64),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => default,
        }
    }

    /// Every rank gets the reduction of all ranks' data.
    pub(crate) fn all_reduce<T: Element>(
        &mut self,
        memory: CallMemory<'_, T>,
        reduce: ReduceOp,
        post_op: PostOp,
    ) -> Result<(), CollectiveError> {
        let call =
            OperationCall { reduce, ..OperationCall::new(Operation::AllReduce, memory.len()) };
        self.reduce_any(call, memory, post_op)
    }

    /// The root gets the reduction of all ranks' data; the data of other ranks does not change.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        memory: CallMemory<'_, T>,
        reduce: ReduceOp,
        root: usize,
    ) -> Result<(), CollectiveError> {
        let call = OperationCall::new(Operation::Reduce, memory.len());
        self.reduce_any(OperationCall { reduce, root: Some(root), ..call }, memory, PostOp::Keep)
    }

    /// Reduces for the root of the call, or for all ranks.
    fn reduce_any<T: Element>(
        &mut self,
        call: OperationCall,
        mut memory: CallMemory<'_, T>,
        post_op: PostOp,
    ) -> Result<(), CollectiveError> {
        let post_op = self.post_op(call.reduce, post_op);
        self.run::<T>(call, |backend, call, deadline| {
            memory.check_segment(&backend.node.segment)?;
            match Algorithm::of(backend.reduction_case::<T>(call)) {
                Algorithm::Eager => backend.reduce_eager(call, &mut memory, post_op, deadline),
                Algorithm::Rounds => backend.reduce_rounds(call, &mut memory, post_op, deadline),
                Algorithm::Overlapping => {
                    backend.all_reduce_overlapping(call, &mut memory, post_op, deadline)
                }
                Algorithm::Ring => backend.all_reduce_in_ring(call, &mut memory, post_op, deadline),
            }
        })
    }

    /// What the choice of the algorithm of a call depends on.
    fn reduction_case<T: Element>(&self, call: OperationCall) -> ReductionCase {
        ReductionCase {
            nodes: self.roster.placement.nodes(),
            bytes: call.count * size_of::<T>(),
            sum_bytes: call.count * size_of::<T::Sum>(),
            has_root: call.root.is_some(),
            order: self.order_of(call.op),
        }
    }

    /// Whether this rank gets the result of the call.
    fn needs_result(&self, call: OperationCall) -> bool {
        call.root.is_none_or(|root| root == self.roster.rank)
    }

    /// Every rank that needs the result reduces all data: one barrier, and the slots are used in turn.
    fn reduce_eager<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        post_op: PostOp,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let slot = self.eager_slot::<T>(call.count);
        memory.copy_to(&(0..call.count), &slot);
        let Round { windows, .. } = self.begin_round(call, &slot, deadline)?;
        if !self.needs_result(call) {
            return Ok(());
        }
        self.fold_blocks(call.reduce, post_op, &windows, 0..call.count, |at, sums| {
            memory.write(at, sums);
        });
        Ok(())
    }

    /// Folds a slice of the windows of this node, block by block, and passes each result to `write`
    /// with its position.
    pub(super) fn fold_blocks<T: Element>(
        &mut self,
        reduce: ReduceOp,
        post_op: PostOp,
        windows: &[Window<T>],
        slice: Range<usize>,
        mut write: impl FnMut(usize, &[T]),
    ) {
        let mut narrowed = Vec::new();
        for block in blocks(slice, Workspace::block::<T>()) {
            let sum = fold_windows(&mut self.workspace, &self.fold, reduce, windows, &block);
            post_op.apply(sum);
            write(block.start, T::narrow(sum, &mut narrowed));
        }
    }

    /// Reduces in rounds of the staging area's size, one after the other.
    fn reduce_rounds<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        post_op: PostOp,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let staging = self.staging::<T>();
        let mut done = 0;
        loop {
            let range = done..call.count.min(done + staging.len());
            let location = memory.stage_in(&range, &staging);
            let is_one_node = self.inter_node.is_none();
            let left = call.count - done;
            // If no rank has staged its data, a round has no limit. All ranks of the node see the
            // same locations, so they agree on it; other nodes do not see them.
            let len = |locations: &[BufferLocation]| {
                let is_direct =
                    |location: &BufferLocation| matches!(location, BufferLocation::Direct(_));
                if is_one_node && locations.iter().all(is_direct) { left } else { range.len() }
            };
            let round = self.begin_round_at::<T>(call, location, len, deadline)?;
            match call.root {
                _ if is_one_node => self.reduce_slice(call, post_op, &round),
                None => self.all_reduce_short(call.reduce, post_op, &round)?,
                Some(root) => self.reduce_between_nodes(call.reduce, root, post_op, &round)?,
            }
            self.local_barrier(deadline)?;
            if self.needs_result(call) {
                memory.stage_out(&range, &staging);
            }
            done += round.len;
            if done == call.count {
                return Ok(());
            }
        }
    }

    /// Folds this rank's slice over all windows and writes the result to the same positions of the
    /// root's window, or of all windows.
    fn reduce_slice<T: Element>(&mut self, call: OperationCall, post_op: PostOp, round: &Round<T>) {
        let slice = slice(round.len, self.world(), self.roster.rank);
        let windows = &round.windows;
        let targets = call.root.map_or(&windows[..], |root| &windows[root..=root]);
        self.fold_blocks(call.reduce, post_op, windows, slice, |at, sums| {
            for target in targets {
                target.write(at, sums);
            }
        });
    }

    /// Reduces with other nodes; for a reduction to a root, the ranks of its node share the work.
    fn reduce_between_nodes<T: Element>(
        &mut self,
        reduce: ReduceOp,
        root: usize,
        post_op: PostOp,
        round: &Round<T>,
    ) -> Result<(), Cause> {
        let Some(inter_node) = &mut self.inter_node else { return Ok(()) };
        let placement = self.roster.placement.clone();
        let root_node = placement.node_of(root);
        let owners = placement.ranks_of(root_node).len();
        let slice_of = |rank: usize| {
            let is_owner = placement.node_of(rank) == root_node;
            if is_owner { slice(round.len, owners, placement.local_of(rank)) } else { 0..0 }
        };
        let slices = |rank| round.slices(&slice_of(rank));
        let mut sum = inter_node.reduce(round, reduce, &slices, &mut self.workspace, &self.node)?;
        if self.roster.node() == root_node {
            post_op.apply(&mut sum);
            let target = &round.windows[placement.local_of(root)];
            target.write(slice_of(self.roster.rank).start, T::narrow(&sum, &mut Vec::new()));
        }
        inter_node.buffers().put(sum);
        Ok(())
    }

    /// Reduces short data, which the first rank of every node folds.
    fn all_reduce_short<T: Element>(
        &mut self,
        reduce: ReduceOp,
        post_op: PostOp,
        round: &Round<T>,
    ) -> Result<(), Cause> {
        let Some(inter_node) = &mut self.inter_node else { return Ok(()) };
        let sum = inter_node.reduce_everywhere(round, reduce, &mut self.workspace, &self.node)?;
        let Some(mut sum) = sum else { return Ok(()) };
        post_op.apply(&mut sum);
        let mut narrowed = Vec::new();
        let values = T::narrow(&sum, &mut narrowed);
        round.windows.iter().for_each(|window| window.write(0, values));
        inter_node.buffers().put(sum);
        Ok(())
    }
}

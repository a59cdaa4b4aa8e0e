//! All-reduce between nodes with overlapping rounds.
//!
//! While the pieces of one round are in transit, the next round is folded, and the result of the
//! previous round is received. Every rank takes the same steps in the same order, so the data that is
//! sent on a connection is the data that is expected there; a rank that waits for other ranks of its
//! node continues to send.

use std::ops::Range;
use std::sync::Arc;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::operation::OperationCall;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::buffer_pool::PooledBuffer;
use crate::runtime::comm::host::in_flight::ROUNDS_IN_FLIGHT;
use crate::runtime::comm::host::region::{CallMemory, PostOp};
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::{rounds, slice};

/// A round in progress, with its range in the memory of the call.
struct InFlightRound<T> {
    round: Round<T>,
    range: Range<usize>,
    /// Share of the staging area that the round uses.
    share: Window<T>,
}

/// A round with its pieces in transit, and this node's pieces of this rank's slice.
type FoldedRound<T> = (InFlightRound<T>, PooledBuffer<<T as Element>::Sum>);

/// Pipeline of the rounds in progress.
struct RoundPipeline<T: Element> {
    /// The round with its pieces in transit.
    folded: Option<FoldedRound<T>>,
    /// The round with its result in transit.
    summed: Option<InFlightRound<T>>,
}

impl HostBackend {
    /// Every rank gets the reduction of all ranks' data.
    pub(crate) fn all_reduce_overlapping<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        post_op: PostOp,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let shares = self.shares();
        let mut pipeline = RoundPipeline { folded: None, summed: None };
        for (number, range) in rounds(call.count, shares[0].len()).enumerate() {
            let share = shares[number % shares.len()].clone();
            let next = self.fold_round(call, memory, range, share, deadline)?;
            self.advance(&mut pipeline, Some(next), memory, call.reduce, post_op)?;
            if shares.len() == 1 {
                self.drain(&mut pipeline, memory, call.reduce, post_op)?;
            }
        }
        self.drain(&mut pipeline, memory, call.reduce, post_op)?;
        let Self { inter_node, node, .. } = self;
        inter_node.as_mut().map_or(Ok(()), |inter_node| inter_node.flush(node, deadline))
    }

    /// Advances every round by one step, and adds `next`.
    fn advance<T: Element>(
        &mut self,
        pipeline: &mut RoundPipeline<T>,
        next: Option<FoldedRound<T>>,
        memory: &mut CallMemory<'_, T>,
        reduce: ReduceOp,
        post_op: PostOp,
    ) -> Result<(), Cause> {
        let folded = std::mem::replace(&mut pipeline.folded, next);
        let summed = folded.map(|folded| self.sum_round(reduce, post_op, folded)).transpose()?;
        match std::mem::replace(&mut pipeline.summed, summed) {
            Some(summed) => self.end_round(memory, &summed),
            None => Ok(()),
        }
    }

    /// Advances all rounds until they are complete.
    fn drain<T: Element>(
        &mut self,
        pipeline: &mut RoundPipeline<T>,
        memory: &mut CallMemory<'_, T>,
        reduce: ReduceOp,
        post_op: PostOp,
    ) -> Result<(), Cause> {
        (1..ROUNDS_IN_FLIGHT)
            .try_for_each(|_| self.advance(pipeline, None, memory, reduce, post_op))
    }

    /// Begins a round, and sends the pieces of this node.
    fn fold_round<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &CallMemory<'_, T>,
        range: Range<usize>,
        share: Window<T>,
        deadline: Deadline,
    ) -> Result<FoldedRound<T>, Cause> {
        let location = memory.stage_in(&range, &share);
        let round = self.begin_round_at::<T>(call, location, |_| range.len(), deadline)?;
        let world = self.world();
        let slices = |rank: usize| round.slices(&slice(range.len(), world, rank));
        let Self { inter_node, node, workspace, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        let own_pieces = inter_node.send_pieces(&round, call.reduce, &slices, workspace, node)?;
        Ok((InFlightRound { round, range, share }, own_pieces))
    }

    /// Computes the result of this rank's slice, writes it on this node and sends it to the others.
    fn sum_round<T: Element>(
        &mut self,
        reduce: ReduceOp,
        post_op: PostOp,
        (in_flight, own_pieces): FoldedRound<T>,
    ) -> Result<InFlightRound<T>, Cause> {
        let (world, rank) = (self.world(), self.roster.rank);
        let round = &in_flight.round;
        let slice_of = |rank: usize| slice(round.len, world, rank);
        let Self { inter_node, node, workspace, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        let mut sum = inter_node.receive_sum(round, reduce, own_pieces, workspace, node)?;
        post_op.apply(&mut sum);
        let values = inter_node.narrow::<T>(sum);
        let bytes = Arc::new(values.cast::<u8>());
        inter_node.send_slice(round, &bytes, &slice_of, node)?;
        for window in &round.windows {
            window.write(slice_of(rank).start, bytemuck::cast_slice(&bytes));
        }
        inter_node.recycle(bytes);
        Ok(in_flight)
    }

    /// Receives the other slices, and copies the result of the round to the memory of the call.
    fn end_round<T: Element>(
        &mut self,
        memory: &mut CallMemory<'_, T>,
        in_flight: &InFlightRound<T>,
    ) -> Result<(), Cause> {
        let InFlightRound { round, range, share } = in_flight;
        let world = self.world();
        let Self { inter_node, node, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        for (owner, values) in inter_node.receive_slices::<T>(round, node)? {
            for window in &round.windows {
                window.write(slice(round.len, world, owner).start, &values);
            }
            inter_node.buffers().put(values);
        }
        inter_node.recycle_sent();
        self.local_barrier(round.deadline)?;
        memory.stage_out(range, share);
        Ok(())
    }
}

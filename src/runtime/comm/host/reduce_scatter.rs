//! Reduction with a part of the result for every rank.
//!
//! Between machines rounds overlap: while the pieces of one round are in transit, the next round is
//! staged and folded.

use std::ops::Range;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::Engine;
use crate::runtime::comm::host::gather::part_len_max;
use crate::runtime::comm::host::region::PostOp;
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::comm::tcp::buffer_pool::PooledBuffer;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::rounds;

/// Data of a call: the parts of all ranks, and this rank's part of the result.
struct Parts<'a, T> {
    all: &'a [T],
    ours: &'a mut [T],
}

/// A round with its pieces in transit.
struct SentRound<T: Element> {
    round: Round<T>,
    /// Its range in every part.
    range: Range<usize>,
    /// This node's pieces of this rank's part.
    sums: PooledBuffer<T::Sum>,
}

impl Engine {
    /// Rank `r` gets part `r` of the reduction of all ranks' data.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        all: &[T],
        ours: &mut [T],
        reduce: ReduceOp,
        post_op: PostOp,
    ) -> Result<(), CollectiveError> {
        let post_op = self.post_op(reduce, post_op);
        let call =
            OperationCall { reduce, ..OperationCall::new(Operation::ReduceScatter, all.len()) };
        self.run::<T>(call, |engine, call, deadline| {
            let parts = Parts { all, ours };
            match &engine.shares_of_parts::<T>()[..] {
                [staging] => engine.reduce_scatter_rounds(call, parts, post_op, staging, deadline),
                shares => engine.reduce_scatter_overlapping(call, parts, post_op, shares, deadline),
            }
        })
    }

    /// Reduces one round after the other.
    fn reduce_scatter_rounds<T: Element>(
        &mut self,
        call: OperationCall,
        Parts { all, ours }: Parts<'_, T>,
        post_op: PostOp,
        staging: &Window<T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        for range in rounds(ours.len(), part_len_max(staging, self.world())?) {
            let window = self.stage_parts(all, ours.len(), &range, staging);
            let round = self.begin_round(call, &window, deadline)?;
            self.reduce_part(call.reduce, post_op, &round, &mut ours[range])?;
            self.local_barrier(deadline)?;
        }
        Ok(())
    }

    /// Reduces with the pieces of one round in transit while the next round is folded.
    fn reduce_scatter_overlapping<T: Element>(
        &mut self,
        call: OperationCall,
        Parts { all, ours }: Parts<'_, T>,
        post_op: PostOp,
        shares: &[Window<T>],
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let mut sent = None;
        let part_len = part_len_max(&shares[0], self.world())?;
        for (number, range) in rounds(ours.len(), part_len).enumerate() {
            let share = &shares[number % shares.len()];
            let window = self.stage_parts(all, ours.len(), &range, share);
            let round = self.begin_round(call, &window, deadline)?;
            let next = self.send_parts(call.reduce, round, range)?;
            if let Some(sent) = sent.replace(next) {
                self.receive_part(call.reduce, post_op, sent, ours)?;
            }
        }
        if let Some(sent) = sent {
            self.receive_part(call.reduce, post_op, sent, ours)?;
        }
        self.flush_sent(deadline)?;
        // Other ranks may still read this rank's windows.
        self.local_barrier(deadline)
    }

    /// Writes a range of the part of every rank to the beginning of a share of the staging area.
    fn stage_parts<T: Element>(
        &self,
        all: &[T],
        part: usize,
        range: &Range<usize>,
        share: &Window<T>,
    ) -> Window<T> {
        for rank in 0..self.world() {
            let start = rank * part + range.start;
            share.write(rank * range.len(), &all[start..start + range.len()]);
        }
        share.part(&(0..self.world() * range.len()))
    }

    /// Sends the pieces of a round to the ranks that own them.
    fn send_parts<T: Element>(
        &mut self,
        reduce: ReduceOp,
        round: Round<T>,
        range: Range<usize>,
    ) -> Result<SentRound<T>, Cause> {
        let slice_of = |rank: usize| rank * range.len()..(rank + 1) * range.len();
        let Self { inter_node, node, workspace, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        let sums = inter_node.send_pieces(&round, reduce, &slice_of, workspace, node)?;
        Ok(SentRound { round, range, sums })
    }

    /// Receives the pieces of this rank's part, and writes their sum.
    fn receive_part<T: Element>(
        &mut self,
        reduce: ReduceOp,
        post_op: PostOp,
        SentRound { round, range, sums }: SentRound<T>,
        ours: &mut [T],
    ) -> Result<(), Cause> {
        let Self { inter_node, node, workspace, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        let mut sum = inter_node.receive_sum(&round, reduce, sums, workspace, node)?;
        post_op.apply(&mut sum);
        ours[range].copy_from_slice(T::narrow(&sum, &mut Vec::new()));
        inter_node.buffers().put(sum);
        inter_node.recycle_sent();
        Ok(())
    }

    /// One round of [`Self::reduce_scatter`]: windows contain, for every rank, a part as long as
    /// `ours`.
    fn reduce_part<T: Element>(
        &mut self,
        reduce: ReduceOp,
        post_op: PostOp,
        round: &Round<T>,
        ours: &mut [T],
    ) -> Result<(), Cause> {
        let part = ours.len();
        let slice_of = |rank: usize| rank * part..(rank + 1) * part;
        if let Some(inter_node) = &mut self.inter_node {
            let workspace = &mut self.workspace;
            let mut sum = inter_node.reduce(round, reduce, &slice_of, workspace, &self.node)?;
            post_op.apply(&mut sum);
            ours.copy_from_slice(T::narrow(&sum, &mut Vec::new()));
            inter_node.buffers().put(sum);
            return Ok(());
        }
        let slice = slice_of(self.roster.rank);
        let start = slice.start;
        self.fold_blocks(reduce, post_op, &round.windows, slice, |at, sums| {
            ours[at - start..][..sums.len()].copy_from_slice(sums);
        });
        Ok(())
    }
}

//! Reduction with a part of the result for every rank.
//!
//! Ranks of a node read each other's data where it is published, and each writes only its own part of its own
//! memory, so that input and output may be the same memory. Between machines rounds overlap: while the pieces
//! of one round are in transit, the next round is published and folded.

use std::ops::Range;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::buffer_pool::PooledBuffer;
use crate::runtime::comm::host::gather::part_len_max;
use crate::runtime::comm::host::parts::PartsRound;
use crate::runtime::comm::host::region::{CallMemory, PostOp, SharedMemory, SourceMemory};
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::rounds;

/// Data of a call: the parts of all ranks, and this rank's part of the result.
struct Scattered<'a, T> {
    all: SourceMemory<'a, T>,
    own_part: CallMemory<'a, T>,
    post_op: PostOp,
}

/// A round with its pieces in transit.
struct SentRound<T: Element> {
    round: PartsRound<T>,
    /// This node's pieces of this rank's part.
    sums: PooledBuffer<T::Sum>,
}

impl HostBackend {
    /// Rank `r` gets part `r` of the reduction of all ranks' data. `own_part` may be that part of `all` if both are
    /// in the segment.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        all: SourceMemory<'_, T>,
        own_part: CallMemory<'_, T>,
        reduce: ReduceOp,
        post_op: PostOp,
    ) -> Result<(), CollectiveError> {
        let post_op = self.post_op(reduce, post_op);
        let call =
            OperationCall { reduce, ..OperationCall::new(Operation::ReduceScatter, all.len()) };
        self.run::<T>(call, |backend, call, deadline| {
            all.check_segment(&backend.node.segment)?;
            own_part.check_segment(&backend.node.segment)?;
            let data = Scattered { all, own_part, post_op };
            if backend.is_eager::<T>(call.count) {
                return backend.reduce_scatter_eager(call, data, deadline);
            }
            match &backend.shares_of_parts::<T>()[..] {
                [staging] => backend.reduce_scatter_rounds(call, data, staging, deadline),
                shares => backend.reduce_scatter_overlapping(call, data, shares, deadline),
            }
        })
    }

    /// Replaces part `r` on rank `r` by that part of the reduction of all ranks' data; the length is divisible
    /// by the number of ranks.
    pub(crate) fn reduce_scatter_in_place<T: Element>(
        &mut self,
        data: Window<T>,
        reduce: ReduceOp,
        post_op: PostOp,
    ) -> Result<(), CollectiveError> {
        let (part, rank) = (data.len() / self.world(), self.roster.rank);
        let own_part =
            CallMemory::Shared(SharedMemory(data.part(&(rank * part..(rank + 1) * part))));
        self.reduce_scatter(SourceMemory::Shared(SharedMemory(data)), own_part, reduce, post_op)
    }

    /// Every rank folds its part of the data that lies beside the flags: one barrier, and the slots are used in
    /// turn.
    fn reduce_scatter_eager<T: Element>(
        &mut self,
        call: OperationCall,
        Scattered { all, mut own_part, post_op }: Scattered<'_, T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let slot = self.eager_slot::<T>(call.count);
        all.copy_to(&(0..call.count), &slot);
        let round = self.begin_round(call, &slot, deadline)?;
        let (part, rank) = (own_part.len(), self.roster.rank);
        let own = rank * part..(rank + 1) * part;
        self.fold_blocks(call.reduce, post_op, &round.windows, own.clone(), |at, sums| {
            own_part.write(at - own.start, sums);
        });
        Ok(())
    }

    /// Reduces one round after the other.
    fn reduce_scatter_rounds<T: Element>(
        &mut self,
        call: OperationCall,
        mut data: Scattered<'_, T>,
        staging: &Window<T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let part = data.own_part.len();
        let part_len = part_len_max(staging, self.world())?;
        let mut done = 0;
        loop {
            let range = done..part.min(done + part_len);
            let round = self.publish_parts(call, &data, range, staging, deadline)?;
            self.reduce_part(call.reduce, &round, &mut data)?;
            // Other ranks may still read this rank's window.
            self.local_barrier(deadline)?;
            done = round.range.end;
            if done == part {
                return Ok(());
            }
        }
    }

    /// Reduces with the pieces of one round in transit while the next round is folded.
    fn reduce_scatter_overlapping<T: Element>(
        &mut self,
        call: OperationCall,
        mut data: Scattered<'_, T>,
        shares: &[Window<T>],
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let mut sent = None;
        let part_len = part_len_max(&shares[0], self.world())?;
        for (number, range) in rounds(data.own_part.len(), part_len).enumerate() {
            let share = &shares[number % shares.len()];
            let round = self.publish_parts(call, &data, range, share, deadline)?;
            let next = self.send_parts(call.reduce, round)?;
            if let Some(sent) = sent.replace(next) {
                self.receive_part(call.reduce, sent, &mut data)?;
            }
        }
        if let Some(sent) = sent {
            self.receive_part(call.reduce, sent, &mut data)?;
        }
        self.flush_sent(deadline)?;
        // Other ranks may still read this rank's windows.
        self.local_barrier(deadline)
    }

    /// Begins a round for a range of the part of every rank, which lies in the data itself, or is written to the
    /// beginning of a share of the staging area.
    fn publish_parts<T: Element>(
        &mut self,
        call: OperationCall,
        Scattered { all, own_part, .. }: &Scattered<'_, T>,
        range: Range<usize>,
        share: &Window<T>,
        deadline: Deadline,
    ) -> Result<PartsRound<T>, Cause> {
        let part = own_part.len();
        let location = match all {
            SourceMemory::Shared(SharedMemory(window)) => BufferLocation::Direct(window.offset()),
            SourceMemory::Slice(values) => {
                for rank in 0..self.world() {
                    let start = rank * part + range.start;
                    share.write(rank * range.len(), &values[start..start + range.len()]);
                }
                BufferLocation::Staged(share.offset())
            }
        };
        self.begin_parts(call, location, range, part, deadline)
    }

    /// Sends the pieces of a round to the ranks that own them.
    fn send_parts<T: Element>(
        &mut self,
        reduce: ReduceOp,
        round: PartsRound<T>,
    ) -> Result<SentRound<T>, Cause> {
        let Self { inter_node, node, workspace, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        let parts = |owner| round.parts(owner);
        let sums = inter_node.send_pieces(&round.round, reduce, &parts, workspace, node)?;
        Ok(SentRound { round, sums })
    }

    /// Receives the pieces of this rank's part, and writes their sum.
    fn receive_part<T: Element>(
        &mut self,
        reduce: ReduceOp,
        SentRound { round, sums }: SentRound<T>,
        data: &mut Scattered<'_, T>,
    ) -> Result<(), Cause> {
        let Self { inter_node, node, workspace, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        let mut sum = inter_node.receive_sum(&round.round, reduce, sums, workspace, node)?;
        data.post_op.apply(&mut sum);
        data.own_part.write(round.range.start, T::narrow(&sum, &mut Vec::new()));
        inter_node.buffers().put(sum);
        inter_node.recycle_sent();
        Ok(())
    }

    /// Reduces this rank's part in a round that is not in transit yet.
    fn reduce_part<T: Element>(
        &mut self,
        reduce: ReduceOp,
        round: &PartsRound<T>,
        Scattered { own_part, post_op, .. }: &mut Scattered<'_, T>,
    ) -> Result<(), Cause> {
        let start = round.range.start;
        if let Some(inter_node) = &mut self.inter_node {
            let (workspace, parts) = (&mut self.workspace, |owner| round.parts(owner));
            let mut sum = inter_node.reduce(&round.round, reduce, &parts, workspace, &self.node)?;
            post_op.apply(&mut sum);
            own_part.write(start, T::narrow(&sum, &mut Vec::new()));
            inter_node.buffers().put(sum);
            return Ok(());
        }
        let parts = round.parts(self.roster.rank);
        self.fold_blocks(reduce, *post_op, &parts, 0..round.range.len(), |at, sums| {
            own_part.write(start + at, sums);
        });
        Ok(())
    }
}

//! All-reduce between nodes in a ring, for groups that accept sums in any order.
//!
//! Every rank communicates with two other ranks only, for any number of nodes; this is for networks
//! in which all-to-all traffic is slow. The sum of each part of the data begins at another node, so
//! the result is equal on all ranks, but differs between placements.

use std::ops::Range;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::operation::OperationCall;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::inter_node::{InterNode, incoming, outgoing};
use crate::runtime::comm::host::region::{CallMemory, PostOp};
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::comm::shm::fold::{Workspace, fold_windows_into};
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::tree::Fold;
use crate::runtime::schedule::{Placement, RingStep, ring, rounds, slice};

/// Position of this rank in the ring of one column of the data, to which one rank of every node
/// belongs.
struct RingPosition {
    columns: usize,
    column: usize,
    /// Rank of the next node, to which this rank sends.
    next: usize,
    /// Rank of the previous node, from which this rank receives.
    previous: usize,
}

impl RingPosition {
    /// Position of a rank; `None` for ranks beyond the number that every node has.
    fn of(rank: usize, placement: &Placement) -> Option<Self> {
        let nodes = placement.nodes();
        let columns = (0..nodes).map(|node| placement.ranks_of(node).len()).min()?;
        let (node, column) = (placement.node_of(rank), placement.local_of(rank));
        let rank_on = |node: usize| placement.ranks_of(node % nodes).get(column).copied();
        (column < columns).then_some(())?;
        let (next, previous) = (rank_on(node + 1)?, rank_on(node + nodes - 1)?);
        Some(Self { columns, column, next, previous })
    }
}

impl HostBackend {
    /// Every rank gets the reduction of all ranks' data, in any order.
    pub(crate) fn all_reduce_in_ring<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        post_op: PostOp,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let staging = self.staging::<T>();
        let position = RingPosition::of(self.roster.rank, &self.roster.placement);
        let fold = Fold::of(self.roster.local_ranks().len());
        for range in rounds(call.count, staging.len()) {
            let location = memory.stage_in(&range, &staging);
            let round = self.begin_round_at::<T>(call, location, |_| range.len(), deadline)?;
            if let (Some(position), Some(inter_node)) = (&position, &mut self.inter_node) {
                let column = slice(round.len, position.columns, position.column);
                let ring_round =
                    RingRound { round: &round, reduce: call.reduce, post_op, position };
                ring_round.run(inter_node, &mut self.workspace, &self.node, &fold, column)?;
            }
            self.local_barrier(deadline)?;
            memory.stage_out(&range, &staging);
        }
        Ok(())
    }
}

/// Parameters of one round of one column.
struct RingRound<'a, T> {
    round: &'a Round<T>,
    reduce: ReduceOp,
    post_op: PostOp,
    position: &'a RingPosition,
}

impl<T: Element> RingRound<'_, T> {
    /// Reduces the column around the ring, and distributes the result.
    fn run(
        &self,
        inter_node: &mut InterNode,
        workspace: &mut Workspace,
        node: &LocalNode,
        fold: &Fold,
        column: Range<usize>,
    ) -> Result<(), Cause> {
        let (nodes, own_node) = (node.roster.placement.nodes(), node.roster.node());
        let chunk = |chunk: usize| slice(column.len(), nodes, chunk);
        let mut sums = inter_node.buffers().take::<T::Sum>(column.len());
        let windows = &self.round.windows;
        fold_windows_into(workspace, fold, self.reduce, windows, &column, &mut sums);
        let longest = (0..nodes).map(|part| chunk(part).len()).max().unwrap_or(0);
        let mut received = inter_node.buffers().take::<T::Sum>(longest);
        for RingStep { send, recv } in ring(nodes, own_node) {
            let received = &mut received[..chunk(recv).len()];
            self.exchange::<T::Sum>(inter_node, node, &sums[chunk(send)], received)?;
            T::Sum::combine_left(self.reduce, &mut sums[chunk(recv)], received);
        }
        // The chunk that this rank has reduced completely after one step for each other node.
        let own_chunk = chunk((own_node + 1) % nodes);
        self.post_op.apply(&mut sums[own_chunk]);
        let mut result = inter_node.narrow::<T>(sums);
        let mut received = received.cast::<T>();
        for RingStep { send, recv } in ring(nodes, own_node + 1) {
            let received = &mut received[..chunk(recv).len()];
            self.exchange::<T>(inter_node, node, &result[chunk(send)], received)?;
            result[chunk(recv)].copy_from_slice(received);
        }
        for window in &self.round.windows {
            window.write(column.start, &result);
        }
        inter_node.buffers().put(result);
        inter_node.buffers().put(received);
        Ok(())
    }

    /// Sends data to the next node, and receives data from the previous one.
    fn exchange<E: Element>(
        &self,
        inter_node: &mut InterNode,
        node: &LocalNode,
        values: &[E],
        received: &mut [E],
    ) -> Result<(), Cause> {
        let Round { fingerprint, deadline, .. } = *self.round;
        let send = outgoing(fingerprint, self.position.next, values);
        let recv = incoming(fingerprint, self.position.previous, received);
        inter_node.exchange(&[send], &mut [recv], node, deadline)
    }
}

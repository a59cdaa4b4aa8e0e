//! All-reduce between nodes in a ring, for groups that accept sums in any order.
//!
//! Every rank communicates with two others only, whatever the number of nodes, for networks in
//! which all-to-all traffic is slow. The sum of each part of the data begins at another node, so
//! the result is equal on all ranks, but differs between placements.

use std::ops::Range;

use crate::runtime::across::{InterNode, Round, incoming, outgoing};
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::engine::{Engine, OperationCall};
use crate::runtime::error::Cause;
use crate::runtime::memory::{CallMemory, Finish};
use crate::runtime::node::{Deadline, LocalNode};
use crate::runtime::schedule::{Placement, RingStep, ring, rounds, slice};
use crate::runtime::shm_window::{Workspace, fold_windows_into};
use crate::runtime::tree::Fold;

/// Position of this rank in the ring of one column of the data, to which one rank of every node
/// belongs.
struct Place {
    columns: usize,
    column: usize,
    next: usize,
    previous: usize,
}

impl Place {
    /// Position of a rank; `None` for ranks beyond the number that every node has.
    fn of(rank: usize, placement: &Placement) -> Option<Self> {
        let nodes = placement.nodes();
        let columns = (0..nodes).map(|node| placement.ranks_of(node).len()).min()?;
        let (node, column) = (placement.node_of(rank), placement.local_of(rank));
        let at = |node: usize| placement.ranks_of(node % nodes).get(column).copied();
        (column < columns).then_some(())?;
        Some(Self { columns, column, next: at(node + 1)?, previous: at(node + nodes - 1)? })
    }
}

impl Engine {
    /// Every rank gets the reduction of all ranks' data, in any order.
    pub(super) fn all_reduce_in_ring<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        finish: Finish,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let staging = self.staging::<T>();
        let place = Place::of(self.roster.rank, &self.roster.placement);
        let fold = Fold::of(self.roster.neighbours().len());
        for range in rounds(call.count, staging.len()) {
            let numbers = memory.stage_in(&range, &staging);
            let round = self.enter_at::<T>(call, numbers, |_| range.len(), patience)?;
            if let (Some(place), Some(across)) = (&place, &mut self.across) {
                let column = slice(round.len, place.columns, place.column);
                let turn = Turn { round: &round, reduce: call.reduce, finish, place };
                turn.run(across, &mut self.workspace, &self.node, &fold, column)?;
            }
            self.meet(patience)?;
            memory.stage_out(&range, &staging);
        }
        Ok(())
    }
}

/// State of one round of one column.
struct Turn<'a, T> {
    round: &'a Round<T>,
    reduce: ReduceOp,
    finish: Finish,
    place: &'a Place,
}

impl<T: Element> Turn<'_, T> {
    fn run(
        &self,
        across: &mut InterNode,
        workspace: &mut Workspace,
        node: &LocalNode,
        fold: &Fold,
        column: Range<usize>,
    ) -> Result<(), Cause> {
        let (nodes, home) = (node.roster.placement.nodes(), node.roster.node());
        let chunk = |chunk: usize| slice(column.len(), nodes, chunk);
        let mut sums = across.rooms().take::<T::Sum>(column.len());
        let windows = &self.round.windows;
        fold_windows_into(workspace, fold, self.reduce, windows, &column, &mut sums);
        let longest = (0..nodes).map(|part| chunk(part).len()).max().unwrap_or(0);
        let mut taken = across.rooms().take::<T::Sum>(longest);
        for RingStep { give, take } in ring(nodes, home) {
            let taken = &mut taken[..chunk(take).len()];
            self.pass::<T::Sum>(across, node, &sums[chunk(give)], taken)?;
            T::Sum::combine_left(self.reduce, &mut sums[chunk(take)], taken);
        }
        // The chunk that this rank has reduced completely after one step for each other node.
        let ours = chunk((home + 1) % nodes);
        self.finish.apply(&mut sums[ours]);
        let mut result = across.narrow::<T>(sums);
        let mut taken = taken.cast::<T>();
        for RingStep { give, take } in ring(nodes, home + 1) {
            let taken = &mut taken[..chunk(take).len()];
            self.pass::<T>(across, node, &result[chunk(give)], taken)?;
            result[chunk(take)].copy_from_slice(taken);
        }
        for window in &self.round.windows {
            window.write(column.start, &result);
        }
        across.rooms().put(result);
        across.rooms().put(taken);
        Ok(())
    }

    /// Sends data to the next node, and receives data from the previous one.
    fn pass<E: Element>(
        &self,
        across: &mut InterNode,
        node: &LocalNode,
        given: &[E],
        taken: &mut [E],
    ) -> Result<(), Cause> {
        let Round { fingerprint, patience, .. } = *self.round;
        let given = outgoing(fingerprint, self.place.next, given);
        let taken = incoming(fingerprint, self.place.previous, taken);
        across.exchange(&[given], &mut [taken], node, patience)
    }
}

//! All-reduce between nodes with overlapping rounds.
//!
//! While the pieces of one round travel, the next one is folded, and the result of the one before
//! comes home. Every rank takes the same steps in the same order, so what is sent on a connection is
//! what is expected there; a rank that waits for neighbours continues to send.

use std::ops::Range;
use std::sync::Arc;

use crate::runtime::across::Round;
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::engine::{Engine, OperationCall};
use crate::runtime::error::Cause;
use crate::runtime::memory::{CallMemory, Finish};
use crate::runtime::node::Deadline;
use crate::runtime::room::PooledBuffer;
use crate::runtime::schedule::{rounds, slice};
use crate::runtime::shm_window::Window;

/// Number of rounds in progress at once between machines: one is folded, one summed, one received.
/// Together they use as much memory as a single round does otherwise, so that data in transit is
/// still in a cache when it is needed.
const ROUNDS_UNDER_WAY: usize = 3;
/// Alignment of the shares of the staging area, in elements; a cache line for every type.
const SHARE_UNIT: usize = 64;

/// A round in progress, with its range in the memory of the call.
struct UnderWay<T> {
    round: Round<T>,
    range: Range<usize>,
    /// Share of the staging area that the round uses.
    share: Window<T>,
}

/// A round with its pieces in transit, and this node's pieces of this rank's slice.
type Folded<T> = (UnderWay<T>, PooledBuffer<<T as Element>::Sum>);

/// The rounds in progress.
struct Line<T: Element> {
    folded: Option<Folded<T>>,
    /// The round with its result in transit.
    summed: Option<UnderWay<T>>,
}

impl Engine {
    /// Every rank gets the reduction of all ranks' data.
    pub(super) fn all_reduce_overlapping<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &mut CallMemory<'_, T>,
        finish: Finish,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let shares = self.shares();
        let mut line = Line { folded: None, summed: None };
        for (number, range) in rounds(call.count, shares[0].len()).enumerate() {
            let share = shares[number % shares.len()].clone();
            let begun = self.fold_round(call, memory, range, share, patience)?;
            self.step(&mut line, Some(begun), memory, call.reduce, finish)?;
            if shares.len() == 1 {
                self.clear(&mut line, memory, call.reduce, finish)?;
            }
        }
        self.clear(&mut line, memory, call.reduce, finish)?;
        let Self { across, node, .. } = self;
        across.as_mut().map_or(Ok(()), |across| across.settle(node, patience))
    }

    /// Advances every round by one step, and begins another one.
    fn step<T: Element>(
        &mut self,
        line: &mut Line<T>,
        begun: Option<Folded<T>>,
        memory: &mut CallMemory<'_, T>,
        reduce: ReduceOp,
        finish: Finish,
    ) -> Result<(), Cause> {
        let folded = std::mem::replace(&mut line.folded, begun);
        let summed = folded.map(|folded| self.sum_round(reduce, finish, folded)).transpose()?;
        match std::mem::replace(&mut line.summed, summed) {
            Some(summed) => self.end_round(memory, &summed),
            None => Ok(()),
        }
    }

    /// Advances all rounds until they are complete.
    fn clear<T: Element>(
        &mut self,
        line: &mut Line<T>,
        memory: &mut CallMemory<'_, T>,
        reduce: ReduceOp,
        finish: Finish,
    ) -> Result<(), Cause> {
        (1..ROUNDS_UNDER_WAY).try_for_each(|_| self.step(line, None, memory, reduce, finish))
    }

    /// Begins a round, and sends the pieces of this node.
    fn fold_round<T: Element>(
        &mut self,
        call: OperationCall,
        memory: &CallMemory<'_, T>,
        range: Range<usize>,
        share: Window<T>,
        patience: Deadline,
    ) -> Result<Folded<T>, Cause> {
        let place = memory.stage_in(&range, &share);
        let round = self.enter_at::<T>(call, place, |_| range.len(), patience)?;
        let world = self.world();
        let slice_of = |rank: usize| slice(range.len(), world, rank);
        let Self { across, node, workspace, .. } = self;
        let across = across.as_mut().expect("there are other nodes");
        let ours = across.send_pieces(&round, call.reduce, &slice_of, workspace, node)?;
        Ok((UnderWay { round, range, share }, ours))
    }

    /// Computes the result of this rank's slice, writes it on this node and sends it to the others.
    fn sum_round<T: Element>(
        &mut self,
        reduce: ReduceOp,
        finish: Finish,
        (under_way, ours): Folded<T>,
    ) -> Result<UnderWay<T>, Cause> {
        let (world, rank) = (self.world(), self.roster.rank);
        let round = &under_way.round;
        let slice_of = |rank: usize| slice(round.len, world, rank);
        let Self { across, node, workspace, .. } = self;
        let across = across.as_mut().expect("there are other nodes");
        let mut sum = across.take_sum(round, reduce, ours, workspace, node)?;
        finish.apply(&mut sum);
        let values = across.narrow::<T>(sum);
        let bytes = Arc::new(values.cast::<u8>());
        across.send_slice(round, &bytes, &slice_of, node)?;
        for window in &round.windows {
            window.write(slice_of(rank).start, bytemuck::cast_slice(&bytes));
        }
        across.let_go(bytes);
        Ok(under_way)
    }

    /// Receives the other slices, and copies the result of the round to the memory of the call.
    fn end_round<T: Element>(
        &mut self,
        memory: &mut CallMemory<'_, T>,
        under_way: &UnderWay<T>,
    ) -> Result<(), Cause> {
        let UnderWay { round, range, share } = under_way;
        let world = self.world();
        let Self { across, node, .. } = self;
        let across = across.as_mut().expect("there are other nodes");
        for (owner, values) in across.take_slices::<T>(round, node)? {
            for window in &round.windows {
                window.write(slice(round.len, world, owner).start, &values);
            }
            across.rooms().put(values);
        }
        across.keep_sent();
        self.meet(round.patience)?;
        memory.stage_out(range, share);
        Ok(())
    }

    /// Shares of the staging area, one for each round in progress; a single share if rounds do not
    /// overlap.
    fn shares<T: Element>(&self) -> Vec<Window<T>> {
        let staging = self.staging::<T>();
        if !self.across.as_ref().is_some_and(|across| across.net().overlaps()) {
            return vec![staging];
        }
        let len = staging.len() / ROUNDS_UNDER_WAY / SHARE_UNIT * SHARE_UNIT;
        let share = |number| staging.part(&(number * len..(number + 1) * len));
        (0..ROUNDS_UNDER_WAY).map(share).collect()
    }
}

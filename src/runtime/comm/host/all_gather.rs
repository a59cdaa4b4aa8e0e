//! All ranks' data for every rank.
//!
//! Between machines rounds overlap: while the parts of one round are in transit, the next round is
//! staged and sent.

use std::ops::Range;
use std::sync::Arc;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::Engine;
use crate::runtime::comm::host::gather::part_len_max;
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;
use crate::runtime::schedule::rounds;

/// A round of which the parts of other nodes are in transit.
struct GatherRound<T> {
    round: Round<T>,
    /// Its range in every part.
    range: Range<usize>,
    /// This rank's window.
    window: Window<T>,
}

impl Engine {
    /// Every rank gets all ranks' data, in rank order.
    pub(crate) fn all_gather<T: Element>(
        &mut self,
        ours: &[T],
        all: &mut [T],
    ) -> Result<(), CollectiveError> {
        self.gather_all(Operation::AllGather, ours, all)
    }

    /// Performs an [`Self::all_gather`] as part of another operation.
    pub(crate) fn gather_all<T: Element>(
        &mut self,
        op: Operation,
        ours: &[T],
        all: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = OperationCall::new(op, ours.len());
        self.run::<T>(call, |engine, call, deadline| {
            let shares = engine.shares_of_parts::<T>();
            let part_len = part_len_max(&shares[0], engine.world())?;
            let mut sent: Option<GatherRound<T>> = None;
            for (number, range) in rounds(ours.len(), part_len).enumerate() {
                let share = &shares[number % shares.len()];
                let next = engine.send_part(call, ours, range, share, deadline)?;
                if let Some(sent) = sent.replace(next) {
                    engine.collect_parts(&sent, all, ours.len())?;
                }
                if let [_only] = &shares[..]
                    && let Some(sent) = sent.take()
                {
                    engine.end_gather(&sent, all, ours.len())?;
                }
            }
            sent.map_or(Ok(()), |sent| engine.end_gather(&sent, all, ours.len()))
        })
    }

    /// Ends the last round of those in progress. The staging area may be written after it.
    fn end_gather<T: Element>(
        &mut self,
        sent: &GatherRound<T>,
        all: &mut [T],
        part: usize,
    ) -> Result<(), Cause> {
        self.collect_parts(sent, all, part)?;
        self.flush_sent(sent.round.deadline)?;
        self.local_barrier(sent.round.deadline)
    }

    /// Begins a round, and sends this rank's part to the other nodes.
    fn send_part<T: Element>(
        &mut self,
        call: OperationCall,
        ours: &[T],
        range: Range<usize>,
        share: &Window<T>,
        deadline: Deadline,
    ) -> Result<GatherRound<T>, Cause> {
        let (part, world, rank) = (range.len(), self.world(), self.roster.rank);
        share.write(rank * part, &ours[range.clone()]);
        let window = share.part(&(0..world * part));
        let round = self.begin_round(call, &window, deadline)?;
        let Self { inter_node, node, .. } = self;
        if let Some(inter_node) = inter_node {
            let mut copy = inter_node.buffers().take(part);
            copy.copy_from_slice(&ours[range.clone()]);
            let slice_of = |rank: usize| rank * part..(rank + 1) * part;
            inter_node.send_slice::<T>(&round, &Arc::new(copy.cast()), &slice_of, node)?;
        }
        Ok(GatherRound { round, range, window })
    }

    /// Receives the parts of the ranks that this one helps into its window, and copies all parts from
    /// the windows of this node.
    fn collect_parts<T: Element>(
        &mut self,
        GatherRound { round, range, window }: &GatherRound<T>,
        all: &mut [T],
        part: usize,
    ) -> Result<(), Cause> {
        let Self { inter_node, node, .. } = self;
        if let Some(inter_node) = inter_node {
            for (owner, values) in inter_node.receive_slices::<T>(round, node)? {
                window.write(owner * range.len(), &values);
                inter_node.buffers().put(values);
            }
            inter_node.recycle_sent();
            self.local_barrier(round.deadline)?;
        }
        for other in 0..self.world() {
            let start = other * part + range.start;
            let target = &mut all[start..start + range.len()];
            self.window_of(round, other).read(other * range.len(), target);
        }
        Ok(())
    }

    /// Waits until all data for other nodes is sent.
    pub(super) fn flush_sent(&mut self, deadline: Deadline) -> Result<(), Cause> {
        let Self { inter_node, node, .. } = self;
        inter_node.as_mut().map_or(Ok(()), |inter_node| inter_node.flush(node, deadline))
    }
}

//! All ranks' data for every rank.
//!
//! A rank whose output lies in the segment publishes the output, with its own part in place; ranks of the node
//! read each part once, where its rank has it. Between machines rounds overlap: while the parts of one round
//! are in transit, the next round is published and sent.

use std::ops::Range;
use std::sync::Arc;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::gather::part_len_max;
use crate::runtime::comm::host::parts::PartsRound;
use crate::runtime::comm::host::region::{CallMemory, SharedMemory, SourceMemory};
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;

/// Data of a call: this rank's part, and the parts of all ranks.
struct Gathered<'a, T> {
    /// `None` if it is in its place in `all`.
    own_part: Option<SourceMemory<'a, T>>,
    all: CallMemory<'a, T>,
    /// Number of elements of a part.
    part: usize,
    rank: usize,
}

impl<T: Element> Gathered<'_, T> {
    /// Range of this rank's part in `all`.
    fn own(&self) -> Range<usize> {
        self.rank * self.part..(self.rank + 1) * self.part
    }

    /// Copies a range of this rank's part to the beginning of `target`.
    fn copy_own_to(&self, range: &Range<usize>, target: &Window<T>) {
        let Some(own_part) = &self.own_part else {
            let start = self.own().start;
            return self.all.copy_to(&(start + range.start..start + range.end), target);
        };
        own_part.copy_to(range, target);
    }

    /// Copies this rank's part to its place, if ranks of the node will read it there.
    fn place_own(&mut self) {
        if let CallMemory::Shared(SharedMemory(window)) = &self.all {
            let place = window.part(&self.own());
            if let Some(own_part) = self.own_part.take() {
                own_part.copy_to(&(0..self.part), &place);
            }
        }
    }
}

impl HostBackend {
    /// Every rank gets all ranks' data, in rank order.
    pub(crate) fn all_gather<T: Element>(
        &mut self,
        own_part: SourceMemory<'_, T>,
        all: CallMemory<'_, T>,
    ) -> Result<(), CollectiveError> {
        let (part, rank) = (own_part.len(), self.roster.rank);
        let data = Gathered { own_part: Some(own_part), all, part, rank };
        let call = OperationCall::new(Operation::AllGather, part);
        self.run::<T>(call, |backend, call, deadline| backend.gather_parts(call, data, deadline))
    }

    /// Every rank gets all ranks' data; part `r` of rank `r` is its data already. The length is divisible by the
    /// number of ranks.
    pub(crate) fn all_gather_in_place<T: Element>(
        &mut self,
        all: Window<T>,
    ) -> Result<(), CollectiveError> {
        let (part, rank) = (all.len() / self.world(), self.roster.rank);
        let all = CallMemory::Shared(SharedMemory(all));
        let data = Gathered { own_part: None, all, part, rank };
        let call = OperationCall::new(Operation::AllGather, part);
        self.run::<T>(call, |backend, call, deadline| backend.gather_parts(call, data, deadline))
    }

    /// Performs an [`Self::all_gather`] as part of another operation.
    pub(crate) fn gather_all<T: Element>(
        &mut self,
        op: Operation,
        own_part: &[T],
        all: &mut [T],
    ) -> Result<(), CollectiveError> {
        let (part, rank) = (own_part.len(), self.roster.rank);
        let (own_part, all) = (Some(SourceMemory::Slice(own_part)), CallMemory::Slice(all));
        let data = Gathered { own_part, all, part, rank };
        let call = OperationCall::new(op, part);
        self.run_uncounted::<T>(call, |backend, call, deadline| {
            backend.gather_parts(call, data, deadline)
        })
    }

    fn gather_parts<T: Element>(
        &mut self,
        call: OperationCall,
        mut data: Gathered<'_, T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let segment = &self.node.segment;
        data.all.check_segment(segment)?;
        data.own_part.as_ref().map_or(Ok(()), |own_part| own_part.check_segment(segment))?;
        if self.is_eager::<T>(call.count) {
            return self.all_gather_eager(call, &mut data, deadline);
        }
        data.place_own();
        self.all_gather_rounds(call, &mut data, deadline)
    }

    /// Every rank reads the data that lies beside the flags: one barrier, and the slots are used in turn.
    fn all_gather_eager<T: Element>(
        &mut self,
        call: OperationCall,
        data: &mut Gathered<'_, T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let slot = self.eager_slot::<T>(data.part);
        data.copy_own_to(&(0..data.part), &slot);
        let round = self.begin_round(call, &slot, deadline)?;
        for other in 0..self.world() {
            data.all.copy_from(other * data.part, self.window_of(&round, other));
        }
        Ok(())
    }

    /// Gathers in rounds. Between machines the parts of one round are in transit while the next round is sent.
    fn all_gather_rounds<T: Element>(
        &mut self,
        call: OperationCall,
        data: &mut Gathered<'_, T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let shares = self.shares_of_parts::<T>();
        let part_len = part_len_max(&shares[0], self.world())?;
        let mut sent: Option<PartsRound<T>> = None;
        let (mut number, mut done) = (0, 0);
        loop {
            let range = done..data.part.min(done + part_len);
            let next =
                self.send_part(call, data, range, &shares[number % shares.len()], deadline)?;
            (number, done) = (number + 1, next.range.end);
            if let Some(sent) = sent.replace(next) {
                self.collect_parts(&sent, data)?;
            }
            if (done == data.part || shares.len() == 1)
                && let Some(sent) = sent.take()
            {
                self.end_gather(&sent, data)?;
            }
            if done == data.part {
                return Ok(());
            }
        }
    }

    /// Ends the last round of those in progress. The memory that this rank has published may be written after
    /// it.
    fn end_gather<T: Element>(
        &mut self,
        sent: &PartsRound<T>,
        data: &mut Gathered<'_, T>,
    ) -> Result<(), Cause> {
        self.collect_parts(sent, data)?;
        self.flush_sent(sent.round.deadline)?;
        self.local_barrier(sent.round.deadline)
    }

    /// Begins a round, and sends this rank's part to the other nodes.
    fn send_part<T: Element>(
        &mut self,
        call: OperationCall,
        data: &Gathered<'_, T>,
        range: Range<usize>,
        share: &Window<T>,
        deadline: Deadline,
    ) -> Result<PartsRound<T>, Cause> {
        let (rank, len) = (self.roster.rank, range.len());
        let location = match &data.all {
            CallMemory::Shared(SharedMemory(window)) => BufferLocation::Direct(window.offset()),
            CallMemory::Slice(_) | CallMemory::Slices(_) => {
                data.copy_own_to(&range, &share.part(&(rank * len..(rank + 1) * len)));
                BufferLocation::Staged(share.offset())
            }
        };
        let round = self.begin_parts::<T>(call, location, range, data.part, deadline)?;
        let Self { inter_node, node, .. } = self;
        if let Some(inter_node) = inter_node {
            let mut copy = inter_node.buffers().take::<T>(len);
            round.part(node.local_rank(), rank).read(0, &mut copy);
            let slice_of = |rank: usize| rank * len..(rank + 1) * len;
            inter_node.send_slice::<T>(&round.round, &Arc::new(copy.cast()), &slice_of, node)?;
        }
        Ok(round)
    }

    /// Receives the parts of the ranks that this one helps into its window, and copies all parts from
    /// the windows of this node.
    fn collect_parts<T: Element>(
        &mut self,
        round: &PartsRound<T>,
        data: &mut Gathered<'_, T>,
    ) -> Result<(), Cause> {
        let Self { inter_node, node, .. } = self;
        let local = node.local_rank();
        if let Some(inter_node) = inter_node {
            for (owner, values) in inter_node.receive_slices::<T>(&round.round, node)? {
                round.part(local, owner).write(0, &values);
                inter_node.buffers().put(values);
            }
            inter_node.recycle_sent();
            self.local_barrier(round.round.deadline)?;
        }
        let is_in_place = matches!(data.all, CallMemory::Shared(_));
        let (world, placement) = (self.world(), &self.roster.placement);
        // Each rank begins with another part, so that they do not all read one rank's memory at once.
        for other in (0..world).map(|step| (data.rank + step) % world) {
            let holder = placement.local_of(placement.helper(self.roster.node(), other));
            if holder != local || !is_in_place {
                let target = other * data.part + round.range.start;
                data.all.copy_from(target, &round.part(holder, other));
            }
        }
        Ok(())
    }

    /// Waits until all data for other nodes is sent.
    pub(super) fn flush_sent(&mut self, deadline: Deadline) -> Result<(), Cause> {
        let Self { inter_node, node, .. } = self;
        inter_node.as_mut().map_or(Ok(()), |inter_node| inter_node.flush(node, deadline))
    }
}

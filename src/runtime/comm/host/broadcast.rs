//! One rank's data for every rank.
//!
//! Short data goes from the root to all other nodes at once. Of long data between machines, each node
//! passes every round on to the next node while it receives the next round, so that each link carries
//! the data once.

use std::ops::Range;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::region::CallMemory;
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;
use crate::runtime::schedule::rounds;

/// A round of which the data is in transit.
struct PassedRound<T> {
    round: Round<T>,
    /// Its range in the memory of the call.
    range: Range<usize>,
}

impl HostBackend {
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
        self.run::<T>(call, |backend, call, deadline| {
            memory.check_segment(&backend.node.segment)?;
            let shares = backend.shares::<T>();
            if 1 < shares.len() && shares[0].len() < call.count {
                return backend.broadcast_in_chain(call, root, &mut memory, &shares, deadline);
            }
            let staging = backend.staging::<T>();
            for range in rounds(call.count, staging.len()) {
                backend.broadcast_round(call, root, &mut memory, &range, &staging, deadline)?;
            }
            Ok(())
        })
    }

    /// Passes the data from node to node; while one round is in transit, the next one begins.
    fn broadcast_in_chain<T: Element>(
        &mut self,
        call: OperationCall,
        root: usize,
        memory: &mut CallMemory<'_, T>,
        shares: &[Window<T>],
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let mut passed = None;
        for (number, range) in rounds(call.count, shares[0].len()).enumerate() {
            let location = self.location_of(root, memory, &range, &shares[number % shares.len()]);
            let round = self.begin_round_at::<T>(call, location, |_| range.len(), deadline)?;
            let Self { inter_node, node, .. } = self;
            let inter_node = inter_node.as_mut().expect("there are other nodes");
            if number == 0 {
                inter_node.sync_nodes(round.fingerprint, node, deadline)?;
            }
            inter_node.begin_passing(&round, root, node)?;
            if let Some(passed) = passed.replace(PassedRound { round, range }) {
                self.end_passed(root, memory, &passed)?;
            }
        }
        if let Some(passed) = passed {
            self.end_passed(root, memory, &passed)?;
        }
        self.flush_sent(deadline)?;
        // Other ranks may still read this rank's windows.
        self.local_barrier(deadline)
    }

    /// Receives the data of a round, and copies it to the memory of the call.
    fn end_passed<T: Element>(
        &mut self,
        root: usize,
        memory: &mut CallMemory<'_, T>,
        PassedRound { round, range }: &PassedRound<T>,
    ) -> Result<(), Cause> {
        let Self { inter_node, node, .. } = self;
        let inter_node = inter_node.as_mut().expect("there are other nodes");
        inter_node.receive_passed(round, root, node)?;
        self.local_barrier(round.deadline)?;
        if root != self.roster.rank {
            memory.copy_from(range.start, self.window_of(round, root));
        }
        Ok(())
    }

    /// Where this rank publishes a round: the root its data, the others the place for it.
    fn location_of<T: Element>(
        &self,
        root: usize,
        memory: &CallMemory<'_, T>,
        range: &Range<usize>,
        staging: &Window<T>,
    ) -> BufferLocation {
        if root == self.roster.rank {
            memory.stage_in(range, staging)
        } else {
            BufferLocation::Staged(staging.offset())
        }
    }

    /// One round of [`Self::broadcast`], for a range of the data.
    fn broadcast_round<T: Element>(
        &mut self,
        call: OperationCall,
        root: usize,
        memory: &mut CallMemory<'_, T>,
        range: &Range<usize>,
        staging: &Window<T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let rank = self.roster.rank;
        let location = self.location_of(root, memory, range, staging);
        let round = self.begin_round_at::<T>(call, location, |_| range.len(), deadline)?;
        if let Some(inter_node) = &mut self.inter_node {
            let own_window = &round.windows[self.node.local_rank()];
            let mut values = inter_node.buffers().take(range.len());
            if root == rank {
                own_window.read(0, &mut values);
            }
            inter_node.broadcast(&round, root, &mut values, &self.node)?;
            if root != rank && self.roster.placement.helper(self.roster.node(), root) == rank {
                own_window.write(0, &values);
            }
            inter_node.buffers().put(values);
            self.local_barrier(deadline)?;
        }
        if root != rank {
            memory.copy_from(range.start, self.window_of(&round, root));
        }
        self.local_barrier(deadline)
    }
}

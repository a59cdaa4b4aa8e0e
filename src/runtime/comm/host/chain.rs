//! Data that passes from node to node.

use std::sync::Arc;

use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::host::buffer_pool::PooledBuffer;
use crate::runtime::comm::host::inter_node::{InterNode, PostedRecv, RecvKey, SharedBytes};
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::dtype::element::Element;

/// Neighbours of a rank in the chain of nodes through which the data of a root passes.
#[derive(Clone, Copy, Debug)]
struct ChainPlace {
    /// Rank on the previous node; `None` for the root.
    from: Option<usize>,
    /// Rank on the next node; `None` on the last one.
    to: Option<usize>,
}

impl ChainPlace {
    /// The place of this rank; `None` if another rank of its node is in the chain.
    fn of(roster: &RankRoster, root: usize) -> Option<Self> {
        let placement = &roster.placement;
        let (nodes, root_node) = (placement.nodes(), placement.node_of(root));
        let rank_at = |place: usize| placement.helper((root_node + place) % nodes, root);
        let place = (roster.node() + nodes - root_node) % nodes;
        (rank_at(place) == roster.rank).then(|| Self {
            from: place.checked_sub(1).map(rank_at),
            to: (place + 1 < nodes).then(|| rank_at(place + 1)),
        })
    }
}

impl InterNode {
    /// Begins to pass the root's data of a round from node to node: the root sends it to the next
    /// node, and its helpers on other nodes expect it.
    pub(crate) fn begin_passing<T: Element>(
        &mut self,
        round: &Round<T>,
        root: usize,
        node: &LocalNode,
    ) -> Result<(), Cause> {
        let roster = self.roster.clone();
        let Some(place) = ChainPlace::of(&roster, root) else { return Ok(()) };
        if let Some(from) = place.from {
            let bytes = self.buffers().take::<T>(round.len).cast();
            let key = RecvKey::Passed { seq: round.fingerprint.seq };
            self.post_recv(round, from, PostedRecv { key, bytes }, node)?;
        } else {
            let mut values = self.buffers().take::<T>(round.len);
            round.windows[roster.local_rank()].read(0, &mut values);
            self.pass_on(round, place, Arc::new(values.cast()), node)?;
        }
        self.progress(&roster).map(drop)
    }

    /// Writes the data of a round that another node has passed to this rank into its window, and
    /// passes it on.
    pub(crate) fn receive_passed<T: Element>(
        &mut self,
        round: &Round<T>,
        root: usize,
        node: &LocalNode,
    ) -> Result<(), Cause> {
        let roster = self.roster.clone();
        let place = ChainPlace::of(&roster, root).filter(|place| place.from.is_some());
        if let Some(place) = place {
            let key = RecvKey::Passed { seq: round.fingerprint.seq };
            let bytes = self.receive(key, node, round.deadline)?;
            round.windows[roster.local_rank()].write(0, bytemuck::cast_slice(&bytes));
            self.pass_on(round, place, Arc::new(bytes), node)?;
            self.progress(&roster)?;
        }
        self.recycle_sent();
        Ok(())
    }

    fn pass_on<T>(
        &mut self,
        round: &Round<T>,
        place: ChainPlace,
        bytes: Arc<PooledBuffer<u8>>,
        node: &LocalNode,
    ) -> Result<(), Cause> {
        if let Some(to) = place.to {
            return self.post_send(round, to, SharedBytes(bytes), node);
        }
        self.recycle(bytes);
        Ok(())
    }
}

//! Part of a reduction between nodes: which bytes this rank sends to which rank, and in which order sums are added.
//!
//! The rank to which a slice belongs is its owner. On every other node one rank, the owner's
//! helper, folds the pieces of the canonical tree that lie there and sends them; the owner combines
//! all pieces in tree order and sends the result back. Both directions together move as many bytes
//! as a ring. Short data is instead sent from the first rank of every node to all other nodes at
//! once.

use std::ops::Range;
use std::sync::Arc;

use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::host::buffer_pool::PooledBuffer;
use crate::runtime::comm::host::inter_node::{
    InterNode, PostedRecv, RecvKey, SharedBytes, incoming, outgoing,
};
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::comm::shm::fold::{Workspace, fold_windows_into};
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::blocks;

impl InterNode {
    /// Returns the reduction over all ranks of this rank's slice; `slices` returns the windows of this node on
    /// the slice of a rank.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        slices: &dyn Fn(usize) -> Vec<Window<T>>,
        workspace: &mut Workspace,
        node: &LocalNode,
    ) -> Result<PooledBuffer<T::Sum>, Cause> {
        let own_pieces = self.send_pieces(round, reduce, slices, workspace, node)?;
        let sum = self.receive_sum(round, reduce, own_pieces, workspace, node)?;
        self.flush(node, round.deadline)?;
        Ok(sum)
    }

    /// Sends this node's pieces to the owners that this rank helps, and returns those of
    /// its own slice, for [`Self::receive_sum`].
    pub(crate) fn send_pieces<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        slices: &dyn Fn(usize) -> Vec<Window<T>>,
        workspace: &mut Workspace,
        node: &LocalNode,
    ) -> Result<PooledBuffer<T::Sum>, Cause> {
        let roster = self.roster.clone();
        let (placement, seq) = (&roster.placement, round.fingerprint.seq);
        let owned = slices(roster.rank);
        let len = owned[roster.local_rank()].len();
        for (helper_node, helper) in placement.helpers(roster.rank) {
            let bytes = self.buffers.take::<T::Sum>(self.pieces_of[helper_node] * len).cast();
            self.post_recv(
                round,
                helper,
                PostedRecv { key: RecvKey::Pieces { seq, node: helper_node }, bytes },
                node,
            )?;
        }
        for owner in placement.helped_by(roster.rank) {
            let sums = self.fold_local_pieces(&slices(owner), reduce, workspace);
            self.post_send(round, owner, SharedBytes(Arc::new(sums.cast())), node)?;
        }
        self.progress(&roster)?;
        Ok(self.fold_local_pieces(&owned, reduce, workspace))
    }

    /// Returns the reduction over all ranks of this rank's slice; `own_pieces` are those of
    /// this node.
    pub(crate) fn receive_sum<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        own_pieces: PooledBuffer<T::Sum>,
        workspace: &mut Workspace,
        node: &LocalNode,
    ) -> Result<PooledBuffer<T::Sum>, Cause> {
        let roster = self.roster.clone();
        let (seq, own_node) = (round.fingerprint.seq, roster.node());
        let len = own_pieces.len() / self.pieces_of[own_node];
        let mut sums = Vec::with_capacity(roster.placement.nodes());
        let mut own_pieces = Some(own_pieces);
        for piece_node in 0..roster.placement.nodes() {
            let key = RecvKey::Pieces { seq, node: piece_node };
            sums.push(match own_pieces.take_if(|_| piece_node == own_node) {
                Some(own_pieces) => own_pieces,
                None => self.receive(key, node, round.deadline)?.cast(),
            });
        }
        Ok(self.combine::<T::Sum>(sums, len, reduce, workspace))
    }

    /// Returns the reduction over all ranks of all data; the first rank of each node calls it.
    pub(crate) fn reduce_everywhere<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        workspace: &mut Workspace,
        node: &LocalNode,
    ) -> Result<Option<PooledBuffer<T::Sum>>, Cause> {
        let roster = self.roster.clone();
        if roster.local_rank() != 0 {
            return Ok(None);
        }
        let own_pieces = self.fold_local_pieces(&round.windows, reduce, workspace);
        let mut sums = self.exchange_sums(round, &own_pieces, node)?;
        sums[roster.node()] = own_pieces;
        Ok(Some(self.combine::<T::Sum>(sums, round.len, reduce, workspace)))
    }

    /// Sends the pieces of this node to this rank's helper on every other node, and receives theirs, in the order of
    /// nodes. The entry of this node stays empty.
    fn exchange_sums<T: Element>(
        &mut self,
        round: &Round<T>,
        own_pieces: &[T::Sum],
        node: &LocalNode,
    ) -> Result<Vec<PooledBuffer<T::Sum>>, Cause> {
        let roster = self.roster.clone();
        let mut sums = Vec::with_capacity(roster.placement.nodes());
        for piece_node in 0..roster.placement.nodes() {
            let is_own = piece_node == roster.node();
            let len = if is_own { 0 } else { self.pieces_of[piece_node] * round.len };
            sums.push(self.buffers.take(len));
        }
        // Helpers are in the order of nodes without this one, as the entries are.
        let buffers =
            sums.iter_mut().enumerate().filter(|(piece_node, _)| *piece_node != roster.node());
        let helpers = || roster.placement.helpers(roster.rank);
        let outgoing: Vec<_> =
            helpers().map(|(_, helper)| outgoing(round.fingerprint, helper, own_pieces)).collect();
        let mut incoming: Vec<_> = buffers
            .zip(helpers())
            .map(|((_, sum), (_, helper))| incoming(round.fingerprint, helper, sum))
            .collect();
        self.net.exchange(&outgoing, &mut incoming, node, round.deadline)?;
        Ok(sums)
    }

    /// Folds the pieces of this node for the slice in its windows, one after the other.
    fn fold_local_pieces<T: Element>(
        &mut self,
        slice: &[Window<T>],
        reduce: ReduceOp,
        workspace: &mut Workspace,
    ) -> PooledBuffer<T::Sum> {
        let len = slice[self.roster.local_rank()].len();
        let mut sums = self.buffers.take(self.local_folds.len() * len);
        for (piece, fold) in self.local_folds.iter().enumerate() {
            let into = &mut sums[piece * len..][..len];
            fold_windows_into(workspace, fold, reduce, slice, &(0..len), into);
        }
        sums
    }

    /// Combines the pieces of every node into the total.
    fn combine<T: Element<Sum = T>>(
        &mut self,
        sums: Vec<PooledBuffer<T>>,
        len: usize,
        reduce: ReduceOp,
        workspace: &mut Workspace,
    ) -> PooledBuffer<T> {
        let mut result = self.buffers.take(len);
        let mut next = vec![0; sums.len()];
        let pieces: Vec<&[T]> = self
            .nodes_of_pieces
            .iter()
            .map(|node| {
                let start = next[*node] * len;
                next[*node] += 1;
                &sums[*node][start..start + len]
            })
            .collect();
        for block in blocks(0..len, Workspace::block::<T>()) {
            let source = |piece: usize| &pieces[piece][block.clone()];
            let sum = workspace.fold(&self.combine, reduce, block.len(), &source);
            result[block.clone()].copy_from_slice(sum);
        }
        for sum in sums {
            self.buffers.put(sum);
        }
        result
    }

    /// Sends this rank's slice to the other nodes; [`Self::receive_slices`] receives those of others.
    pub(crate) fn send_slice<T: Element>(
        &mut self,
        round: &Round<T>,
        slice: &Arc<PooledBuffer<u8>>,
        slice_of: &dyn Fn(usize) -> Range<usize>,
        node: &LocalNode,
    ) -> Result<(), Cause> {
        let roster = self.roster.clone();
        let (placement, seq) = (&roster.placement, round.fingerprint.seq);
        for owner in placement.helped_by(roster.rank) {
            let bytes = self.buffers.take::<T>(slice_of(owner).len()).cast();
            self.post_recv(
                round,
                owner,
                PostedRecv { key: RecvKey::Slice { seq, owner }, bytes },
                node,
            )?;
        }
        for (_, helper) in placement.helpers(roster.rank) {
            self.post_send(round, helper, SharedBytes(slice.clone()), node)?;
        }
        self.progress(&roster).map(drop)
    }

    /// Receives the slices of a round, of owners that this rank helps: `(owner, data)`; the caller
    /// returns the buffers.
    pub(crate) fn receive_slices<T: Element>(
        &mut self,
        round: &Round<T>,
        node: &LocalNode,
    ) -> Result<Vec<(usize, PooledBuffer<T>)>, Cause> {
        let (roster, seq) = (self.roster.clone(), round.fingerprint.seq);
        let owners = roster.placement.helped_by(roster.rank);
        owners
            .map(|owner| {
                let bytes = self.receive(RecvKey::Slice { seq, owner }, node, round.deadline)?;
                Ok((owner, bytes.cast()))
            })
            .collect()
    }
}

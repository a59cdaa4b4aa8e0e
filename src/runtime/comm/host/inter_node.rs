//! Part of a collective between nodes: receives sums of other nodes and sends results.
//!
//! The rank to which a slice belongs is its owner. On every other node one rank, the owner's
//! helper, folds the pieces of the canonical tree that lie there and sends them; the owner combines
//! all pieces in tree order and sends the result back. Both directions together move as many bytes
//! as a ring. Short data is instead sent from the first rank of every node to all other nodes at
//! once.

use std::ops::Range;
use std::sync::Arc;

use crate::base::clock;
use crate::runtime::comm::core::abort::AbortRecord;
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::fingerprint::Fingerprint;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::host::buffer_pool::{BufferPool, PooledBuffer};
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::comm::shm::fold::{Workspace, fold_windows_into};
use crate::runtime::comm::shm::window::Window;
use crate::runtime::comm::store::abort::{ABORT_KEY, AbortNotice};
use crate::runtime::comm::store::shared::STORE_TIMEOUT;
use crate::runtime::comm::tcp::mesh::{Incoming, Mesh, Outgoing};
use crate::runtime::comm::tcp::striping::Transfers;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::blocks;
use crate::runtime::schedule::tree::{Fold, pieces};

impl From<AbortNotice> for AbortRecord {
    fn from(AbortNotice { by, lost, reason }: AbortNotice) -> Self {
        Self { by, lost, reason }
    }
}

/// Connections of this rank to other nodes, and its part in collectives between nodes.
pub(crate) struct InterNode {
    net: Mesh,
    pub(super) roster: Arc<RankRoster>,
    /// Node of every piece, left to right.
    nodes_of_pieces: Vec<usize>,
    /// Number of pieces of every node.
    pieces_of: Vec<usize>,
    /// Fold of the sums of all pieces into the total.
    combine: Fold,
    /// Folds of the windows of this node into its pieces.
    local_folds: Vec<Fold>,
    buffers: BufferPool,
    /// Transfers of the rounds in progress; empty between operations.
    transfers: Transfers<SharedBytes, PostedRecv>,
    /// Received data that was not requested yet.
    received: Vec<PostedRecv>,
}

/// Bytes that are sent to several ranks.
pub(super) struct SharedBytes(pub(super) Arc<PooledBuffer<u8>>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Buffer for data of another node, and the data that it is for.
pub(super) struct PostedRecv {
    pub(super) key: RecvKey,
    pub(super) bytes: PooledBuffer<u8>,
}

/// Identity of data that this rank expects from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvKey {
    /// Pieces of this rank's slice in a round, from a node.
    Pieces { seq: u64, node: usize },
    /// Result of a round in the slice of a rank that this one helps.
    Slice { seq: u64, owner: usize },
    /// Data of a round that passes from node to node.
    Passed { seq: u64 },
}

impl AsRef<[u8]> for PostedRecv {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for PostedRecv {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl InterNode {
    pub(crate) fn new(net: Mesh, roster: Arc<RankRoster>) -> Self {
        let placement = &roster.placement;
        let pieces = pieces(placement.node_of_all());
        let find = |leaves: &Range<usize>| pieces.iter().position(|(_, piece)| piece == leaves);
        let combine = Fold::over(0..placement.world_size(), &find);
        let window_of =
            |leaves: &Range<usize>| (leaves.len() == 1).then(|| placement.local_of(leaves.start));
        let node = roster.node();
        let local_pieces = pieces.iter().filter(|(piece_node, _)| *piece_node == node);
        let local_folds =
            local_pieces.map(|(_, leaves)| Fold::over(leaves.clone(), &window_of)).collect();
        let nodes_of_pieces = pieces.iter().map(|(piece_node, _)| *piece_node).collect();
        let mut pieces_of = vec![0; placement.nodes()];
        for (piece_node, _) in &pieces {
            pieces_of[*piece_node] += 1;
        }
        Self {
            net,
            roster,
            nodes_of_pieces,
            pieces_of,
            combine,
            local_folds,
            buffers: BufferPool::default(),
            transfers: Transfers::new(),
            received: Vec::new(),
        }
    }

    pub(crate) fn net(&self) -> &Mesh {
        &self.net
    }

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
        let peers = roster.placement.helpers(roster.rank);
        let outgoing: Vec<_> =
            peers.map(|(_, peer)| outgoing(round.fingerprint, peer, &own_pieces)).collect();
        let mut sums = self.exchange_sums(round, &outgoing, round.len, node)?;
        sums[roster.node()] = own_pieces;
        Ok(Some(self.combine::<T::Sum>(sums, round.len, reduce, workspace)))
    }

    /// Sends, and receives the pieces of every other node from this rank's helper there: `len`
    /// elements each, in the order of nodes. The entry of this node stays empty.
    fn exchange_sums<T: Element>(
        &mut self,
        round: &Round<T>,
        outgoing: &[Outgoing<'_>],
        len: usize,
        node: &LocalNode,
    ) -> Result<Vec<PooledBuffer<T::Sum>>, Cause> {
        let roster = self.roster.clone();
        let mut sums = Vec::with_capacity(roster.placement.nodes());
        for piece_node in 0..roster.placement.nodes() {
            let is_own = piece_node == roster.node();
            let len = if is_own { 0 } else { self.pieces_of[piece_node] * len };
            sums.push(self.buffers.take(len));
        }
        // Helpers are in the order of nodes without this one, as the entries are.
        let buffers =
            sums.iter_mut().enumerate().filter(|(piece_node, _)| *piece_node != roster.node());
        let helpers = roster.placement.helpers(roster.rank);
        let mut incoming: Vec<_> = buffers
            .zip(helpers)
            .map(|((_, sum), (_, helper))| incoming(round.fingerprint, helper, sum))
            .collect();
        self.net.exchange(outgoing, &mut incoming, node, round.deadline)?;
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

    /// Continues to connect to a peer without waiting; returns whether it is connected.
    pub(crate) fn advance_connect(&mut self, peer: usize, node: &LocalNode) -> Result<bool, Cause> {
        self.net.advance_connect(peer, node)
    }

    /// Posts data to send to a peer; connects to it first.
    pub(super) fn post_send<T>(
        &mut self,
        round: &Round<T>,
        peer: usize,
        bytes: SharedBytes,
        node: &LocalNode,
    ) -> Result<(), Cause> {
        self.net.connect(peer, node, round.deadline)?;
        self.transfers.post_send(round.fingerprint, peer, bytes, &self.net);
        Ok(())
    }

    /// Posts a buffer for data from a peer; connects to it first.
    pub(super) fn post_recv<T>(
        &mut self,
        round: &Round<T>,
        peer: usize,
        arrival: PostedRecv,
        node: &LocalNode,
    ) -> Result<(), Cause> {
        self.net.connect(peer, node, round.deadline)?;
        self.transfers.post_recv(round.fingerprint, peer, arrival, &self.net);
        Ok(())
    }

    /// Waits for data whose buffer was posted before.
    pub(super) fn receive(
        &mut self,
        key: RecvKey,
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<PooledBuffer<u8>, Cause> {
        let Self { net, transfers, received: arrived, .. } = self;
        loop {
            arrived.extend(transfers.take_received());
            if let Some(at) = arrived.iter().position(|arrival| arrival.key == key) {
                return Ok(arrived.swap_remove(at).bytes);
            }
            net.drive(transfers, Transfers::has_received, node, deadline)?;
        }
    }

    /// Continues the current transfers without waiting; returns whether there are more.
    pub(crate) fn progress(&mut self, roster: &RankRoster) -> Result<bool, Cause> {
        if self.transfers.is_idle() {
            return Ok(false);
        }
        self.transfers.pump(&self.net, roster)?;
        Ok(!self.transfers.is_idle())
    }

    /// Waits until all data is sent, at the end of an operation, and returns the buffers to the pool.
    pub(crate) fn flush(&mut self, node: &LocalNode, deadline: Deadline) -> Result<(), Cause> {
        self.net.drive(&mut self.transfers, Transfers::is_idle, node, deadline)?;
        self.recycle_sent();
        Ok(())
    }

    /// Returns the buffers that have been sent to the pool.
    pub(crate) fn recycle_sent(&mut self) {
        let Self { transfers, buffers, .. } = self;
        let bytes = transfers.take_sent().filter_map(|SharedBytes(bytes)| Arc::into_inner(bytes));
        bytes.for_each(|bytes| buffers.put(bytes));
    }

    /// Returns a buffer to the pool, unless a transfer still uses it.
    pub(crate) fn recycle(&mut self, bytes: Arc<PooledBuffer<u8>>) {
        if let Some(bytes) = Arc::into_inner(bytes) {
            self.buffers.put(bytes);
        }
    }

    /// Converts a sum to the type of its elements.
    pub(crate) fn narrow<T: Element>(&mut self, sum: PooledBuffer<T::Sum>) -> PooledBuffer<T> {
        if T::DTYPE == <T::Sum as Element>::DTYPE {
            return sum.cast();
        }
        let mut narrow = self.buffers.take::<T>(sum.len());
        narrow.copy_from_slice(T::narrow(&sum, &mut Vec::new()));
        self.buffers.put(sum);
        narrow
    }

    /// Pool of buffers for data of an operation.
    pub(crate) fn buffers(&mut self) -> &mut BufferPool {
        &mut self.buffers
    }

    /// Sends the root's data to its helper on every other node.
    pub(crate) fn broadcast<T: Element>(
        &mut self,
        round: &Round<T>,
        root: usize,
        values: &mut [T],
        node: &LocalNode,
    ) -> Result<(), Cause> {
        self.sync_nodes(round.fingerprint, node, round.deadline)?;
        let roster = self.roster.clone();
        let (placement, rank) = (&roster.placement, roster.rank);
        let (fingerprint, deadline) = (round.fingerprint, round.deadline);
        if rank == root {
            let outgoing: Vec<_> = placement
                .helpers(root)
                .map(|(_, helper)| outgoing(fingerprint, helper, values))
                .collect();
            return self.net.exchange(&outgoing, &mut [], node, deadline);
        }
        if placement.node_of(root) != roster.node() && placement.helper(roster.node(), root) == rank
        {
            let mut incoming = [incoming(fingerprint, root, values)];
            return self.net.exchange(&[], &mut incoming, node, deadline);
        }
        Ok(())
    }

    /// Synchronizes the first ranks of all nodes, and compares the calls of their nodes.
    pub(crate) fn sync_nodes(
        &mut self,
        fingerprint: Fingerprint,
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let roster = self.roster.clone();
        if roster.local_rank() != 0 {
            return Ok(());
        }
        let peers: Vec<usize> =
            roster.placement.helpers(roster.rank).map(|(_, peer)| peer).collect();
        let outgoing: Vec<_> =
            peers.iter().map(|peer| Outgoing { fingerprint, peer: *peer, bytes: &[] }).collect();
        let mut nothing: Vec<[u8; 0]> = vec![[]; peers.len()];
        let mut incoming: Vec<_> = peers
            .iter()
            .zip(&mut nothing)
            .map(|(peer, bytes)| Incoming { fingerprint, peer: *peer, bytes })
            .collect();
        self.net.exchange(&outgoing, &mut incoming, node, deadline)
    }

    /// Sends and receives messages to and from ranks of other nodes, all at once.
    pub(crate) fn exchange(
        &mut self,
        outgoing: &[Outgoing<'_>],
        incoming: &mut [Incoming<'_>],
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        self.net.exchange(outgoing, incoming, node, deadline)
    }

    /// Abort record in the store, if there is one: a peer may have closed its connection because
    /// another rank failed.
    pub(crate) fn find_abort(&self) -> Option<AbortRecord> {
        let deadline = clock::now() + STORE_TIMEOUT;
        let mut store = self.net.store();
        let mut notices = self.net.abort_keys().iter();
        let notice = notices.find_map(|key| store.peek(key, deadline).ok()?)?;
        Some(postcard::from_bytes::<AbortNotice>(&notice).ok()?.into())
    }

    /// Notifies the other nodes of a failure: writes the abort record to the store first, then closes
    /// the connections, so that a rank that sees a closed connection finds the reason.
    pub(crate) fn abort(&mut self, record: &AbortRecord) {
        let AbortRecord { by, lost, reason } = record.clone();
        let notice = postcard::to_allocvec(&AbortNotice { by, lost, reason })
            .expect("texts and numbers serialize");
        // The store itself may be lost; peers then notice the failure by their connections.
        let key = self.net.abort_keys().first().map_or(ABORT_KEY, String::as_str);
        let _ = self.net.store().set_once(key, &notice, clock::now() + STORE_TIMEOUT);
        self.net.close();
    }
}

/// Message with the bytes of `values`.
pub(crate) fn outgoing<T: Element>(
    fingerprint: Fingerprint,
    peer: usize,
    values: &[T],
) -> Outgoing<'_> {
    Outgoing { fingerprint, peer, bytes: bytemuck::cast_slice(values) }
}

/// Message whose bytes replace `values`.
pub(crate) fn incoming<T: Element>(
    fingerprint: Fingerprint,
    peer: usize,
    values: &mut [T],
) -> Incoming<'_> {
    Incoming { fingerprint, peer, bytes: bytemuck::cast_slice_mut(values) }
}

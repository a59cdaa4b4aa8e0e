//! [`InterNode`]: the connections of a rank to other nodes, and the transfers of the rounds in progress.

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
use crate::runtime::comm::store::shared::{ABORT_KEY, STORE_TIMEOUT};
use crate::runtime::comm::tcp::mesh::{Incoming, Mesh, Outgoing};
use crate::runtime::comm::tcp::striping::Transfers;
use crate::runtime::dtype::element::Element;
use crate::runtime::schedule::tree::{Fold, pieces};

/// Connections of this rank to other nodes, and its part in collectives between nodes.
pub(crate) struct InterNode {
    pub(super) net: Mesh,
    pub(super) roster: Arc<RankRoster>,
    /// Node of every piece, left to right.
    pub(super) nodes_of_pieces: Vec<usize>,
    /// Number of pieces of every node.
    pub(super) pieces_of: Vec<usize>,
    /// Fold of the sums of all pieces into the total.
    pub(super) combine: Fold,
    /// Folds of the windows of this node into its pieces.
    pub(super) local_folds: Vec<Fold>,
    pub(super) buffers: BufferPool,
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
        AbortRecord::decode(&notice)
    }

    /// Notifies the other nodes of a failure: writes the abort record to the store first, then closes
    /// the connections, so that a rank that sees a closed connection finds the reason.
    pub(crate) fn abort(&mut self, record: &AbortRecord) {
        // The store itself may be lost; peers then notice the failure by their connections.
        let key = self.net.abort_keys().first().map_or(ABORT_KEY, String::as_str);
        let _ = self.net.store().set_once(key, &record.encode(), clock::now() + STORE_TIMEOUT);
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

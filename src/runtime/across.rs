//! What a round needs beyond its node: sums of other nodes in, results out.
//!
//! For each slice the rank to which it belongs is its owner. On every other node one rank, the
//! owner's helper, folds the pieces of the canonical tree that lie there and sends them; the owner
//! combines all pieces in tree order and sends the result back. Both ways together move what a ring
//! would. What is short goes from the first rank of every node to all others at once instead.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Rank, clock};
use crate::runtime::cells::Alarm;
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::error::{Cause, Fingerprint, Loss};
use crate::runtime::net::{ABORT_KEY, Incoming, Net, Outgoing};
use crate::runtime::node::{LocalNode, Patience, Roster};
use crate::runtime::room::{Room, Rooms};
use crate::runtime::schedule::blocks;
use crate::runtime::shm_window::{Window, Workspace, fold_windows_into};
use crate::runtime::tree::{Fold, pieces};

/// How long giving up may take because of the store.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// See [`Across::is_short`]: what a node takes in at most, and from how many others fewer than this.
const SHORT_BYTES: usize = 1 << 14;
const SHORT_NODES_MAX: usize = 16;

/// The most that is short between so many nodes.
pub(crate) fn short_bytes_max(nodes: usize) -> Option<usize> {
    let others = nodes - 1;
    (0 < others && others < SHORT_NODES_MAX).then(|| SHORT_BYTES / others)
}

/// An alarm as the store carries it.
#[derive(Serialize, Deserialize)]
pub(crate) struct AbortNotice {
    pub(crate) by: Rank,
    pub(crate) lost: Option<Loss>,
    pub(crate) reason: String,
}

impl From<AbortNotice> for Alarm {
    fn from(AbortNotice { by, lost, reason }: AbortNotice) -> Self {
        Self { by, lost, reason }
    }
}

/// One round, opened: what everybody came for, and where the numbers of the node lie.
pub(crate) struct Round<T> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) windows: Vec<Window<T>>,
    /// Elements of every window.
    pub(crate) len: usize,
    pub(crate) patience: Patience,
}

pub(crate) struct Across {
    net: Net,
    roster: Arc<Roster>,
    /// Node of every piece, left to right.
    nodes_of_pieces: Vec<usize>,
    /// How many of them every node has.
    pieces_of: Vec<usize>,
    /// Makes the sum of all from the sums of pieces.
    combine: Fold,
    /// Make the pieces of this node from its windows.
    ours: Vec<Fold>,
    rooms: Rooms,
}

impl Across {
    pub(crate) fn new(net: Net, roster: Arc<Roster>) -> Self {
        let placement = &roster.placement;
        let pieces = pieces(placement.node_of_all());
        let find = |leaves: &Range<usize>| pieces.iter().position(|(_, piece)| piece == leaves);
        let combine = Fold::over(0..placement.world_size(), &find);
        let window_of =
            |leaves: &Range<usize>| (leaves.len() == 1).then(|| placement.local_of(leaves.start));
        let node = roster.node();
        let ours = pieces.iter().filter(|(home, _)| *home == node);
        let ours = ours.map(|(_, leaves)| Fold::over(leaves.clone(), &window_of)).collect();
        let nodes_of_pieces = pieces.iter().map(|(node, _)| *node).collect();
        let mut pieces_of = vec![0; placement.nodes()];
        for (home, _) in &pieces {
            pieces_of[*home] += 1;
        }
        Self { net, roster, nodes_of_pieces, pieces_of, combine, ours, rooms: Rooms::default() }
    }

    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// The reduction over all ranks of our slice, `slice_of(rank)`.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        slice_of: &dyn Fn(usize) -> Range<usize>,
        workspace: &mut Workspace,
        node: &LocalNode,
    ) -> Result<Room<T::Sum>, Cause> {
        let roster = self.roster.clone();
        let placement = &roster.placement;
        let (fingerprint, owned) = (round.fingerprint, slice_of(roster.rank));
        let mut partials = Vec::new();
        for owner in placement.helped_by(roster.rank) {
            let sums = self.fold_ours(round, reduce, &slice_of(owner), workspace);
            partials.push((owner, sums));
        }
        let outgoing: Vec<_> =
            partials.iter().map(|(owner, sum)| outgoing(fingerprint, *owner, sum)).collect();
        let mut sums = self.exchange_sums(round, &outgoing, owned.len(), node)?;
        sums[roster.node()] = self.fold_ours(round, reduce, &owned, workspace);
        for (_, sum) in partials {
            self.rooms.put(sum);
        }
        Ok(self.combine::<T::Sum>(sums, owned.len(), reduce, workspace))
    }

    /// Whether so many bytes are sooner everywhere at once than folded slice by slice: one meeting of
    /// nodes instead of two, and every node folds everything.
    pub(crate) fn is_short(&self, bytes: usize) -> bool {
        short_bytes_max(self.roster.placement.nodes()).is_some_and(|most| bytes <= most)
    }

    /// The reduction over all ranks of everything, for the first rank of each node.
    pub(crate) fn reduce_everywhere<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        workspace: &mut Workspace,
        node: &LocalNode,
    ) -> Result<Option<Room<T::Sum>>, Cause> {
        let roster = self.roster.clone();
        if roster.local_rank() != 0 {
            return Ok(None);
        }
        let ours = self.fold_ours(round, reduce, &(0..round.len), workspace);
        let peers = roster.placement.helpers(roster.rank);
        let outgoing: Vec<_> =
            peers.map(|(_, peer)| outgoing(round.fingerprint, peer, &ours)).collect();
        let mut sums = self.exchange_sums(round, &outgoing, round.len, node)?;
        sums[roster.node()] = ours;
        Ok(Some(self.combine::<T::Sum>(sums, round.len, reduce, workspace)))
    }

    /// Sends, and takes the pieces of every other node from our helper there: `len` elements each, in
    /// the order of nodes. The place of ours stays empty.
    fn exchange_sums<T: Element>(
        &mut self,
        round: &Round<T>,
        outgoing: &[Outgoing<'_>],
        len: usize,
        node: &LocalNode,
    ) -> Result<Vec<Room<T::Sum>>, Cause> {
        let roster = self.roster.clone();
        let mut sums = Vec::with_capacity(roster.placement.nodes());
        for home in 0..roster.placement.nodes() {
            let len = if home == roster.node() { 0 } else { self.pieces_of[home] * len };
            sums.push(self.rooms.take(len));
        }
        // Helpers come in the order of nodes, ours left out, as the places do.
        let places = sums.iter_mut().enumerate().filter(|(home, _)| *home != roster.node());
        let helpers = roster.placement.helpers(roster.rank);
        let mut incoming: Vec<_> = places
            .zip(helpers)
            .map(|((_, sum), (_, helper))| incoming(round.fingerprint, helper, sum))
            .collect();
        self.net.exchange(outgoing, &mut incoming, node, round.patience)?;
        Ok(sums)
    }

    /// The pieces of our node for a slice, one after the other.
    fn fold_ours<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        slice: &Range<usize>,
        workspace: &mut Workspace,
    ) -> Room<T::Sum> {
        let mut sums = self.rooms.take(self.ours.len() * slice.len());
        let mut at = 0;
        for fold in &self.ours {
            for block in blocks(slice.clone(), Workspace::block::<T>()) {
                let into = &mut sums[at..at + block.len()];
                fold_windows_into(workspace, fold, reduce, &round.windows, &block, into);
                at += block.len();
            }
        }
        sums
    }

    /// The sum of all from the pieces of every node.
    fn combine<T: Element<Sum = T>>(
        &mut self,
        sums: Vec<Room<T>>,
        len: usize,
        reduce: ReduceOp,
        workspace: &mut Workspace,
    ) -> Room<T> {
        let mut result = self.rooms.take(len);
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
            self.rooms.put(sum);
        }
        result
    }

    /// Gives our slice to the other nodes, and gets the slices whose owners we help:
    /// `(owner, numbers)`, to be put back.
    pub(crate) fn spread<T: Element>(
        &mut self,
        round: &Round<T>,
        ours: &[T],
        slice_of: &dyn Fn(usize) -> Range<usize>,
        node: &LocalNode,
    ) -> Result<Vec<(usize, Room<T>)>, Cause> {
        let roster = self.roster.clone();
        let placement = &roster.placement;
        let fingerprint = round.fingerprint;
        let outgoing: Vec<_> = placement
            .helpers(roster.rank)
            .map(|(_, helper)| outgoing(fingerprint, helper, ours))
            .collect();
        let mut helped: Vec<(usize, Room<T>)> = placement
            .helped_by(roster.rank)
            .map(|owner| (owner, self.rooms.take(slice_of(owner).len())))
            .collect();
        let mut incoming: Vec<_> = helped
            .iter_mut()
            .map(|(owner, values)| incoming(fingerprint, *owner, values))
            .collect();
        self.net.exchange(&outgoing, &mut incoming, node, round.patience)?;
        Ok(helped)
    }

    /// Room for numbers of an operation.
    pub(crate) fn rooms(&mut self) -> &mut Rooms {
        &mut self.rooms
    }

    /// Brings the root's numbers to its helper on every other node.
    pub(crate) fn broadcast<T: Element>(
        &mut self,
        round: &Round<T>,
        root: usize,
        values: &mut [T],
        node: &LocalNode,
    ) -> Result<(), Cause> {
        self.greet(round.fingerprint, node, round.patience)?;
        let roster = self.roster.clone();
        let (placement, rank) = (&roster.placement, roster.rank);
        let (fingerprint, patience) = (round.fingerprint, round.patience);
        if rank == root {
            let outgoing: Vec<_> = placement
                .helpers(root)
                .map(|(_, helper)| outgoing(fingerprint, helper, values))
                .collect();
            return self.net.exchange(&outgoing, &mut [], node, patience);
        }
        if placement.node_of(root) != roster.node() && placement.helper(roster.node(), root) == rank
        {
            let mut incoming = [incoming(fingerprint, root, values)];
            return self.net.exchange(&[], &mut incoming, node, patience);
        }
        Ok(())
    }

    /// First ranks of all nodes meet, and compare what their nodes came for.
    pub(crate) fn greet(
        &mut self,
        fingerprint: Fingerprint,
        node: &LocalNode,
        patience: Patience,
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
        self.net.exchange(&outgoing, &mut incoming, node, patience)
    }

    /// Messages to and from ranks of other nodes, all at once.
    pub(crate) fn exchange(
        &mut self,
        outgoing: &[Outgoing<'_>],
        incoming: &mut [Incoming<'_>],
        node: &LocalNode,
        patience: Patience,
    ) -> Result<(), Cause> {
        self.net.exchange(outgoing, incoming, node, patience)
    }

    /// What is behind a closed connection: perhaps the peer only gave up because of another.
    pub(crate) fn explain(&self) -> Option<Alarm> {
        let deadline = clock::now() + STORE_PATIENCE;
        let mut store = self.net.store();
        let mut notices = self.net.notices().iter();
        let notice = notices.find_map(|key| store.peek(key, deadline).ok()?)?;
        Some(postcard::from_bytes::<AbortNotice>(&notice).ok()?.into())
    }

    /// Tells the other nodes, first why, then by closing connections, so that who sees a closed
    /// connection finds the reason.
    pub(crate) fn give_up(&mut self, alarm: &Alarm) {
        let Alarm { by, lost, reason } = alarm.clone();
        let notice = postcard::to_allocvec(&AbortNotice { by, lost, reason })
            .expect("texts and numbers serialize");
        // The store may be what is gone; peers then learn it from their connections.
        let key = self.net.notices().first().map_or(ABORT_KEY, String::as_str);
        let _ = self.net.store().set_once(key, &notice, clock::now() + STORE_PATIENCE);
        self.net.close();
    }
}

pub(crate) fn outgoing<T: Element>(
    fingerprint: Fingerprint,
    peer: usize,
    values: &[T],
) -> Outgoing<'_> {
    Outgoing { fingerprint, peer, bytes: bytemuck::cast_slice(values) }
}

pub(crate) fn incoming<T: Element>(
    fingerprint: Fingerprint,
    peer: usize,
    values: &mut [T],
) -> Incoming<'_> {
    Incoming { fingerprint, peer, bytes: bytemuck::cast_slice_mut(values) }
}

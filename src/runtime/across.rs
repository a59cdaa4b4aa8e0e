//! What a round needs beyond its node: sums of other nodes in, results out.
//!
//! For each slice the rank to which it belongs is its owner. On every other node one rank, the
//! owner's helper, folds the pieces of the canonical tree that lie there and sends them; the owner
//! combines all pieces in tree order and sends the result back. Both ways together move what a ring
//! would.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Rank, clock};
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::error::{Cause, Fingerprint, Loss};
use crate::runtime::net::{ABORT_KEY, Incoming, Net, Outgoing};
use crate::runtime::node::{LocalNode, Patience, Roster};
use crate::runtime::schedule::blocks;
use crate::runtime::shm::Alarm;
use crate::runtime::shm_window::{Window, Workspace, fold_windows};
use crate::runtime::tree::{Fold, pieces};

/// How long giving up may take because of the store.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

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
    /// Makes the sum of all from the sums of pieces.
    combine: Fold,
    /// Make the pieces of this node from its windows.
    ours: Vec<Fold>,
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
        Self { net, roster, nodes_of_pieces, combine, ours }
    }

    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    fn pieces_of(&self, node: usize) -> usize {
        self.nodes_of_pieces.iter().filter(|home| **home == node).count()
    }

    /// The reduction over all ranks of our slice, `slice_of(rank)`.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        round: &Round<T>,
        reduce: ReduceOp,
        slice_of: &dyn Fn(usize) -> Range<usize>,
        workspace: &mut Workspace,
        node: &LocalNode,
    ) -> Result<Vec<T::Sum>, Cause> {
        let roster = self.roster.clone();
        let placement = &roster.placement;
        let owned = slice_of(roster.rank);
        let partials: Vec<(usize, Vec<T::Sum>)> = placement
            .helped_by(roster.rank)
            .map(|owner| (owner, self.fold_ours(round, reduce, slice_of(owner), workspace)))
            .collect();
        let mut sums = vec![Vec::new(); placement.nodes()];
        let helpers: Vec<_> = placement.helpers(roster.rank).collect();
        for (node, _) in &helpers {
            sums[*node] =
                vec![<T::Sum as bytemuck::Zeroable>::zeroed(); self.pieces_of(*node) * owned.len()];
        }
        let fingerprint = round.fingerprint;
        let outgoing: Vec<_> =
            partials.iter().map(|(owner, sum)| outgoing(fingerprint, *owner, sum)).collect();
        let mut incomings = Vec::new();
        for (node, sum) in sums.iter_mut().enumerate() {
            if let Some((_, helper)) = helpers.iter().find(|(home, _)| *home == node) {
                incomings.push(incoming(fingerprint, *helper, sum));
            }
        }
        self.net.exchange(&outgoing, &mut incomings, node, round.patience)?;
        sums[roster.node()] = self.fold_ours(round, reduce, owned.clone(), workspace);
        Ok(self.combine::<T::Sum>(&sums, owned.len(), reduce, workspace))
    }

    /// The pieces of our node for a slice, one after the other.
    fn fold_ours<T: Element>(
        &self,
        round: &Round<T>,
        reduce: ReduceOp,
        slice: Range<usize>,
        workspace: &mut Workspace,
    ) -> Vec<T::Sum> {
        let mut sums = Vec::with_capacity(self.ours.len() * slice.len());
        for fold in &self.ours {
            for block in blocks(slice.clone(), Workspace::block::<T>()) {
                let sum = fold_windows(workspace, fold, reduce, &round.windows, &block);
                sums.extend_from_slice(sum);
            }
        }
        sums
    }

    fn combine<T: Element<Sum = T>>(
        &self,
        sums: &[Vec<T>],
        len: usize,
        reduce: ReduceOp,
        workspace: &mut Workspace,
    ) -> Vec<T> {
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
        let mut result = Vec::with_capacity(len);
        for block in blocks(0..len, Workspace::block::<T>()) {
            let source = |piece: usize| &pieces[piece][block.clone()];
            let sum = workspace.fold(&self.combine, reduce, block.len(), &source);
            result.extend_from_slice(sum);
        }
        result
    }

    /// Gives our slice to the other nodes, and gets the slices whose owners we help:
    /// `(owner, numbers)`.
    pub(crate) fn spread<T: Element>(
        &mut self,
        round: &Round<T>,
        ours: &[T],
        slice_of: &dyn Fn(usize) -> Range<usize>,
        node: &LocalNode,
    ) -> Result<Vec<(usize, Vec<T>)>, Cause> {
        let roster = self.roster.clone();
        let placement = &roster.placement;
        let fingerprint = round.fingerprint;
        let outgoing: Vec<_> = placement
            .helpers(roster.rank)
            .map(|(_, helper)| outgoing(fingerprint, helper, ours))
            .collect();
        let mut helped: Vec<(usize, Vec<T>)> = placement
            .helped_by(roster.rank)
            .map(|owner| (owner, vec![T::zeroed(); slice_of(owner).len()]))
            .collect();
        let mut incoming: Vec<_> = helped
            .iter_mut()
            .map(|(owner, values)| incoming(fingerprint, *owner, values))
            .collect();
        self.net.exchange(&outgoing, &mut incoming, node, round.patience)?;
        Ok(helped)
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

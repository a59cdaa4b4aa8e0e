//! Split of a group into smaller ones.
//!
//! All ranks publish their color and key, and every rank computes the same new groups. Then the first
//! member of each group on every node provides memory for its flags, and if the group spans nodes, every
//! member opens a listener. If a rank fails to do this, it reports the failure to all members.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::runtime::across::InterNode;
use crate::runtime::engine::Engine;
use crate::runtime::error::{Error, Operation, Result};
use crate::runtime::net::{Mesh, MeshListener, PeerInfo};
use crate::runtime::node::RankRoster;
use crate::runtime::shm::Segment;
use crate::runtime::shm_window::{Arena, SegmentLease};

/// Group that a rank requests, and its position in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitRequest {
    pub(crate) color: Option<usize>,
    pub(crate) key: usize,
}

/// Resources of a member of a new group.
pub(crate) struct Part {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    pub(crate) across: Option<InterNode>,
    pub(crate) seat: SegmentLease,
}

/// Offer of a member to the others.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    /// Offset of the segment of its node, from the first member of the node.
    start: Option<u64>,
    /// Its listener, if the group spans nodes.
    peer: Option<PeerInfo>,
    /// Why it can offer nothing.
    problem: Option<String>,
}

/// Resources behind a member's offer.
#[derive(Default)]
struct Means {
    range: Option<Range<usize>>,
    door: Option<MeshListener>,
}

/// Size in bytes of every encoded offer.
const OFFER_BYTES: usize = 192;
const PROBLEM_BYTES_MAX: usize = 96;

impl Engine {
    /// Creates the group for the color of this rank's request.
    pub(crate) fn split(&mut self, wish: SplitRequest, arena: &Arc<Arena>) -> Result<Option<Part>> {
        self.splits += 1;
        let wishes = self.exchange_wishes(wish)?;
        let members = members(&wishes, wish);
        let ours = members.iter().position(|member| *member == self.roster.rank);
        let roster = ours.map(|rank| Arc::new(RankRoster::part_of(&self.roster, rank, &members)));
        let (means, offer) = match &roster {
            Some(roster) => self.prepare(roster, arena),
            None => (Means::default(), Offer { start: None, peer: None, problem: None }),
        };
        let offers = self.exchange_offers(&offer);
        let (Some(roster), Some(color)) = (roster, wish.color) else {
            return offers.map(|_| None);
        };
        let Means { range, door } = means;
        let joined =
            offers.and_then(|offers| self.join_part(&roster, &members, offers, door, color));
        let segment = joined.as_ref().ok().map(|(segment, _)| segment);
        let seat = arena.sit(segment, range);
        let (segment, across) = joined?;
        let seat = seat.expect("there is a segment to sit in");
        Ok(Some(Part { roster, segment, across, seat }))
    }

    fn exchange_wishes(&mut self, wish: SplitRequest) -> Result<Vec<SplitRequest>> {
        let ours =
            [i64::from(wish.color.is_some()), wish.color.unwrap_or(0) as i64, wish.key as i64];
        let mut all = vec![0; ours.len() * self.world()];
        self.gather_all(Operation::Split, &ours, &mut all)?;
        let read = |[has_color, color, key]: &[i64; 3]| SplitRequest {
            color: (*has_color != 0).then_some(*color as usize),
            key: *key as usize,
        };
        Ok(all.as_chunks::<3>().0.iter().map(read).collect())
    }

    /// Allocates the resources of this rank, and describes them in an offer.
    fn prepare(&self, roster: &RankRoster, arena: &Arena) -> (Means, Offer) {
        let mut means = Means::default();
        let mut problem = None;
        if roster.local_rank() == 0 {
            match arena.take_part(roster.neighbours().len()) {
                Ok(range) => means.range = Some(range),
                Err(error) => problem = Some(error.to_string()),
            }
        }
        let mut peer = None;
        if let Some(across) = self.across.as_ref().filter(|_| 1 < roster.placement.nodes()) {
            match across.net().open_door() {
                Ok(door) => {
                    // All ranks already know the placement.
                    peer = Some(door.info("", across.net().manner()));
                    means.door = Some(door);
                }
                Err(error) => problem = Some(format!("cannot listen: {error}")),
            }
        }
        let start = means.range.as_ref().map(|range| range.start as u64);
        let problem = problem.map(|problem| cut(problem, PROBLEM_BYTES_MAX));
        (means, Offer { start, peer, problem })
    }

    fn exchange_offers(&mut self, offer: &Offer) -> Result<Vec<Offer>> {
        let mut ours = postcard::to_allocvec(offer).expect("texts and numbers serialize");
        ours.resize(OFFER_BYTES, 0);
        let mut all = vec![0u8; OFFER_BYTES * self.world()];
        self.gather_all(Operation::Split, &ours, &mut all)?;
        let offers = all.chunks(OFFER_BYTES).enumerate().map(|(rank, bytes)| {
            let offer = postcard::take_from_bytes(bytes).map(|(offer, _)| offer);
            offer.map_err(|_| self.refusal(rank, "its offer means nothing"))
        });
        offers.collect()
    }

    fn refusal(&self, rank: usize, problem: &str) -> Error {
        Error::Split { rank: self.roster.name(rank), problem: problem.to_owned() }
    }

    /// Opens the segment and the connections that the members offer.
    fn join_part(
        &self,
        roster: &Arc<RankRoster>,
        members: &[usize],
        mut offers: Vec<Offer>,
        door: Option<MeshListener>,
        color: usize,
    ) -> Result<(Arc<Segment>, Option<InterNode>)> {
        for member in members {
            if let Some(problem) = &offers[*member].problem {
                return Err(self.refusal(*member, problem));
            }
        }
        let first = members[roster.neighbours()[0]];
        let neighbours = roster.neighbours().iter();
        let local_of = |rank: &usize| self.roster.placement.local_of(members[*rank]);
        let locals = neighbours.map(local_of).collect();
        let segment = offers[first]
            .start
            .and_then(|start| Segment::part_of(&self.node.segment, start as usize, locals))
            .ok_or_else(|| self.refusal(first, "its memory is not there"))?;
        let (Some(across), Some(door)) = (&self.across, door) else { return Ok((segment, None)) };
        let peers = members.iter().map(|member| {
            let peer = offers[*member].peer.take();
            peer.ok_or_else(|| self.refusal(*member, "it cannot be called"))
        });
        let peers = peers.collect::<Result<_>>()?;
        let notice = self.notice_of_part(across.net(), color);
        let net = across.net().part(roster.rank, door, peers, notice);
        Ok((segment, Some(InterNode::new(net, roster.clone()))))
    }

    /// Key in the store for the new group's alarm: a name of fixed length that differs from those
    /// of all other groups.
    fn notice_of_part(&self, net: &Mesh, color: usize) -> String {
        let ours = net.notices().first().map_or("", String::as_str);
        let digest = Sha256::digest(format!("{ours}/{}/{color}", self.splits));
        let number = digest.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
        format!("abort/{number:032x}")
    }
}

/// Ranks with the same color as `ours`, in the order of keys, and of ranks where keys are equal.
fn members(wishes: &[SplitRequest], ours: SplitRequest) -> Vec<usize> {
    let shares = |rank: &usize| ours.color.is_some() && wishes[*rank].color == ours.color;
    let mut members: Vec<usize> = (0..wishes.len()).filter(shares).collect();
    members.sort_by_key(|rank| wishes[*rank].key);
    members
}

fn cut(mut text: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

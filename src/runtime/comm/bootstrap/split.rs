//! Split of a group into subgroups.
//!
//! All ranks publish their color and key, and every rank computes the same new groups. Then the first
//! member of each group on every node provides memory for its flags, and if the group spans nodes, every
//! member opens a listener. If a rank fails to do this, it reports the failure to all members.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::host::backend::Engine;
use crate::runtime::comm::host::inter_node::InterNode;
use crate::runtime::comm::shm::arena::{Arena, SegmentLease};
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::comm::tcp::mesh::{Mesh, MeshListener, PeerInfo};
use crate::runtime::error::{Error, Result};

/// Request of a rank for a subgroup, and for its position in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitRequest {
    pub(crate) color: Option<usize>,
    pub(crate) key: usize,
}

/// Resources of a member of a subgroup.
pub(crate) struct Subgroup {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    pub(crate) inter_node: Option<InterNode>,
    pub(crate) lease: SegmentLease,
}

/// Resources that a member provides to the others: memory and a listener.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    /// Offset of the segment of its node; only from the first member of the node.
    start: Option<u64>,
    /// Its listener, if the group spans nodes.
    peer: Option<PeerInfo>,
    /// Reason for which it cannot provide its resources.
    problem: Option<String>,
}

/// Resources of this rank that its offer describes.
#[derive(Default)]
struct OfferedResources {
    range: Option<Range<usize>>,
    listener: Option<MeshListener>,
}

/// Size in bytes of every encoded offer.
const OFFER_BYTES: usize = 192;
const PROBLEM_BYTES_MAX: usize = 96;

impl Engine {
    /// Creates the group for the color of this rank's request.
    pub(crate) fn split(
        &mut self,
        request: SplitRequest,
        arena: &Arc<Arena>,
    ) -> Result<Option<Subgroup>> {
        self.splits += 1;
        let requests = self.exchange_requests(request)?;
        let members = members(&requests, request);
        let ours = members.iter().position(|member| *member == self.roster.rank);
        let roster =
            ours.map(|rank| Arc::new(RankRoster::of_subgroup(&self.roster, rank, &members)));
        let (resources, offer) = match &roster {
            Some(roster) => self.allocate_resources(roster, arena),
            None => (OfferedResources::default(), Offer { start: None, peer: None, problem: None }),
        };
        let offers = self.exchange_offers(&offer);
        let (Some(roster), Some(color)) = (roster, request.color) else {
            return offers.map(|_| None);
        };
        let OfferedResources { range, listener } = resources;
        let outcome = offers
            .and_then(|offers| self.join_subgroup(&roster, &members, offers, listener, color));
        let segment = outcome.as_ref().ok().map(|(segment, _)| segment);
        let lease = arena.lease(segment, range);
        let (segment, inter_node) = outcome?;
        let lease = lease.expect("a segment has a lease");
        Ok(Some(Subgroup { roster, segment, inter_node, lease }))
    }

    /// Returns the requests of all ranks.
    fn exchange_requests(&mut self, request: SplitRequest) -> Result<Vec<SplitRequest>> {
        let SplitRequest { color, key } = request;
        let ours = [i64::from(color.is_some()), color.unwrap_or(0) as i64, key as i64];
        let mut all = vec![0; ours.len() * self.world()];
        self.gather_all(Operation::Split, &ours, &mut all)?;
        let read = |[has_color, color, key]: &[i64; 3]| SplitRequest {
            color: (*has_color != 0).then_some(*color as usize),
            key: *key as usize,
        };
        Ok(all.as_chunks::<3>().0.iter().map(read).collect())
    }

    /// Allocates the resources of this rank, and describes them in an offer.
    fn allocate_resources(&self, roster: &RankRoster, arena: &Arena) -> (OfferedResources, Offer) {
        let mut resources = OfferedResources::default();
        let mut problem = None;
        if roster.local_rank() == 0 {
            match arena.allocate_subgroup(roster.local_ranks().len()) {
                Ok(range) => resources.range = Some(range),
                Err(error) => problem = Some(Error::from(error).to_string()),
            }
        }
        let mut peer = None;
        if let Some(inter_node) = self.inter_node.as_ref().filter(|_| 1 < roster.placement.nodes())
        {
            match inter_node.net().open_listener() {
                Ok(listener) => {
                    // All ranks already know the placement.
                    peer = Some(listener.info("", inter_node.net().settings()));
                    resources.listener = Some(listener);
                }
                Err(error) => problem = Some(format!("cannot listen: {error}")),
            }
        }
        let start = resources.range.as_ref().map(|range| range.start as u64);
        let problem = problem.map(|problem| truncate(problem, PROBLEM_BYTES_MAX));
        (resources, Offer { start, peer, problem })
    }

    /// Returns the offers of all ranks.
    fn exchange_offers(&mut self, offer: &Offer) -> Result<Vec<Offer>> {
        let mut ours = postcard::to_allocvec(offer).expect("texts and numbers serialize");
        ours.resize(OFFER_BYTES, 0);
        let mut all = vec![0u8; OFFER_BYTES * self.world()];
        self.gather_all(Operation::Split, &ours, &mut all)?;
        let offers = all.chunks(OFFER_BYTES).enumerate().map(|(rank, bytes)| {
            let offer = postcard::take_from_bytes(bytes).map(|(offer, _)| offer);
            offer.map_err(|_| self.split_error(rank, "protocol error: malformed offer"))
        });
        offers.collect()
    }

    fn split_error(&self, rank: usize, problem: &str) -> Error {
        Error::Split { rank: self.roster.job_rank(rank), problem: problem.to_owned() }
    }

    /// Opens the segment and the connections that the members offer.
    fn join_subgroup(
        &self,
        roster: &Arc<RankRoster>,
        members: &[usize],
        mut offers: Vec<Offer>,
        listener: Option<MeshListener>,
        color: usize,
    ) -> Result<(Arc<Segment>, Option<InterNode>)> {
        for member in members {
            if let Some(problem) = &offers[*member].problem {
                return Err(self.split_error(*member, problem));
            }
        }
        let first = members[roster.local_ranks()[0]];
        let neighbours = roster.local_ranks().iter();
        let local_of = |rank: &usize| self.roster.placement.local_of(members[*rank]);
        let locals = neighbours.map(local_of).collect();
        let segment = offers[first]
            .start
            .and_then(|start| Segment::open_subgroup(&self.node.segment, start as usize, locals))
            .ok_or_else(|| self.split_error(first, "its shared memory segment does not exist"))?;
        let (Some(inter_node), Some(listener)) = (&self.inter_node, listener) else {
            return Ok((segment, None));
        };
        let peers = members.iter().map(|member| {
            let peer = offers[*member].peer.take();
            peer.ok_or_else(|| self.split_error(*member, "it has no listener"))
        });
        let peers = peers.collect::<Result<_>>()?;
        let abort_key = self.subgroup_abort_key(inter_node.net(), color);
        let net = inter_node.net().subgroup(roster.rank, listener, peers, abort_key);
        Ok((segment, Some(InterNode::new(net, roster.clone()))))
    }

    /// Key in the store for the abort record of the subgroup: a name of fixed length that differs from
    /// those of all other groups.
    fn subgroup_abort_key(&self, net: &Mesh, color: usize) -> String {
        let parent = net.abort_keys().first().map_or("", String::as_str);
        let digest = Sha256::digest(format!("{parent}/{}/{color}", self.splits));
        let number = digest.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
        format!("abort/{number:032x}")
    }
}

/// Ranks with the same color as `own`, in the order of keys, and of ranks if keys are equal.
fn members(requests: &[SplitRequest], own: SplitRequest) -> Vec<usize> {
    let is_member = |rank: &usize| own.color.is_some() && requests[*rank].color == own.color;
    let mut members: Vec<usize> = (0..requests.len()).filter(is_member).collect();
    members.sort_by_key(|rank| requests[*rank].key);
    members
}

/// Truncates a text at a character boundary.
fn truncate(mut text: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

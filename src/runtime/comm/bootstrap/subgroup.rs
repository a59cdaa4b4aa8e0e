//! Creation of a subgroup, after its members have met.
//!
//! The first member on every node provides memory for the flags, and if the group spans nodes, every
//! member opens a listener. Each member describes this to the others in an offer.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::base::prefix;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::host::inter_node::InterNode;
use crate::runtime::comm::shm::arena::{Arena, SegmentLease};
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::comm::tcp::mesh::{MeshListener, MeshSeed, PeerInfo};
use crate::runtime::error::{Error, Result};

/// Parts of a group from which subgroups are made, without its backend.
pub(crate) struct Founder {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    pub(crate) arena: Arc<Arena>,
    /// `None` if all ranks of the group are on one node.
    pub(crate) net: Option<MeshSeed>,
    /// Key in the store for the abort record of the group; it differs from those of all other groups.
    pub(crate) abort_key: String,
}

/// Resources of a member of a subgroup.
pub(crate) struct Subgroup {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    pub(crate) inter_node: Option<InterNode>,
    pub(crate) lease: SegmentLease,
    pub(crate) abort_key: String,
}

/// Resources that a member provides to the others: memory and a listener.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MemberOffer {
    /// Offset of the segment of its node; only from the first member of the node.
    start: Option<u64>,
    /// Its listener, if the group spans nodes.
    peer: Option<PeerInfo>,
    /// Reason for which it cannot provide its resources.
    problem: Option<String>,
}

/// Resources of this rank that its offer describes.
#[derive(Default)]
pub(crate) struct OfferedResources {
    range: Option<Range<usize>>,
    listener: Option<MeshListener>,
}

/// Largest size in bytes of an encoded offer.
pub(crate) const OFFER_BYTES: usize = 192;
const PROBLEM_BYTES_MAX: usize = 96;

impl MemberOffer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("texts and numbers serialize")
    }
}

impl Founder {
    /// Allocates the resources of this rank for a subgroup, and describes them in an offer.
    pub(crate) fn offer(&self, roster: &RankRoster) -> (OfferedResources, MemberOffer) {
        let mut resources = OfferedResources::default();
        let mut problem = None;
        if roster.local_rank() == 0 {
            match self.arena.allocate_subgroup(roster.local_ranks().len()) {
                Ok(range) => resources.range = Some(range),
                Err(error) => problem = Some(Error::from(error).to_string()),
            }
        }
        let mut peer = None;
        if let Some(net) = self.net.as_ref().filter(|_| 1 < roster.placement.nodes()) {
            match net.open_listener() {
                Ok(listener) => {
                    // All ranks already know the placement.
                    peer = Some(listener.info("", net.settings));
                    resources.listener = Some(listener);
                }
                Err(error) => problem = Some(format!("cannot listen: {error}")),
            }
        }
        let start = resources.range.as_ref().map(|range| range.start as u64);
        let problem = problem.map(|problem| prefix(&problem, PROBLEM_BYTES_MAX).to_owned());
        (resources, MemberOffer { start, peer, problem })
    }

    /// Decodes the offer of a rank of this group.
    pub(crate) fn decode_offer(&self, rank: usize, bytes: &[u8]) -> Result<MemberOffer> {
        let offer = postcard::take_from_bytes(bytes).map(|(offer, _)| offer);
        offer.map_err(|_| self.member_error(rank, "protocol error: malformed offer"))
    }

    fn member_error(&self, rank: usize, problem: &str) -> Error {
        Error::Split { rank: self.roster.job_rank(rank), problem: problem.to_owned() }
    }

    /// Frees resources that no other rank uses.
    pub(crate) fn free(&self, resources: OfferedResources) {
        // Without a segment there is no lease.
        drop(self.arena.lease(None, resources.range));
    }

    /// Joins the subgroup of these members, whose offers are in the same order.
    pub(crate) fn join(
        &self,
        roster: Arc<RankRoster>,
        members: &[usize],
        offers: Vec<MemberOffer>,
        resources: OfferedResources,
        abort_key: String,
    ) -> Result<Subgroup> {
        let OfferedResources { range, listener } = resources;
        let outcome = self.open(&roster, members, offers, listener, &abort_key);
        let segment = outcome.as_ref().ok().map(|(segment, _)| segment);
        let lease = self.arena.lease(segment, range);
        let (segment, inter_node) = outcome?;
        let lease = lease.expect("a segment has a lease");
        Ok(Subgroup { roster, segment, inter_node, lease, abort_key })
    }

    /// Opens the segment and the connections that the members offer.
    fn open(
        &self,
        roster: &Arc<RankRoster>,
        members: &[usize],
        mut offers: Vec<MemberOffer>,
        listener: Option<MeshListener>,
        abort_key: &str,
    ) -> Result<(Arc<Segment>, Option<InterNode>)> {
        for (member, offer) in members.iter().zip(&offers) {
            if let Some(problem) = &offer.problem {
                return Err(self.member_error(*member, problem));
            }
        }
        let first = roster.local_ranks()[0];
        let neighbours = roster.local_ranks().iter();
        let local_of = |rank: &usize| self.roster.placement.local_of(members[*rank]);
        let locals = neighbours.map(local_of).collect();
        let no_segment =
            || self.member_error(members[first], "its shared memory segment does not exist");
        let segment = offers[first]
            .start
            .and_then(|start| Segment::open_subgroup(&self.segment, start as usize, locals))
            .ok_or_else(no_segment)?;
        let (Some(net), Some(listener)) = (&self.net, listener) else {
            return Ok((segment, None));
        };
        let peers = members.iter().zip(&mut offers).map(|(member, offer)| {
            let peer = offer.peer.take();
            peer.ok_or_else(|| self.member_error(*member, "it has no listener"))
        });
        let peers = peers.collect::<Result<_>>()?;
        let net = net.mesh(roster.rank, listener, peers, abort_key.to_owned());
        Ok((segment, Some(InterNode::new(net, roster.clone()))))
    }

    /// Key for the abort record of a subgroup: of fixed length, and different from those of all other
    /// groups if `name` differs from that of all other subgroups of this group.
    pub(crate) fn abort_key_of(&self, name: &str) -> String {
        format!("abort/{:032x}", digest(&format!("{}/{name}", self.abort_key)))
    }
}

/// Number that differs for different texts.
pub(crate) fn digest(text: &str) -> u128 {
    let digest = Sha256::digest(text);
    digest.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes))
}

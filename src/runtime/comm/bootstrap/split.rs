//! Split of a group into subgroups.
//!
//! All ranks publish their color and key, and every rank computes the same new groups. Then all ranks
//! publish what they offer to the new group of each; if a rank has failed, all members see it.

use std::sync::Arc;

use crate::base::order;
use crate::runtime::comm::bootstrap::subgroup::{Founder, MemberOffer, OFFER_BYTES, Subgroup};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::error::Result;

/// Request of a rank for a subgroup, and for its position in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitRequest {
    pub(crate) color: Option<usize>,
    pub(crate) key: usize,
}

impl HostBackend {
    /// Creates the group for the color of this rank's request.
    pub(crate) fn split(
        &mut self,
        request: SplitRequest,
        founder: &Founder,
    ) -> Result<Option<Subgroup>> {
        self.splits += 1;
        let requests = self.exchange_requests(request)?;
        let members = members(&requests, request);
        let place = members.iter().position(|member| *member == self.roster.rank);
        let (Some(rank), Some(color)) = (place, request.color) else {
            return self.exchange_offers(&MemberOffer::default(), founder).map(|_| None);
        };
        let roster = Arc::new(RankRoster::of_subgroup(&self.roster, rank, &members));
        let (resources, offer) = founder.offer(&roster);
        let offers = self
            .exchange_offers(&offer, founder)
            .map(|offers| members.iter().map(|member| offers[*member].clone()).collect::<Vec<_>>());
        let abort_key = founder.abort_key_of(&format!("{}/{color}", self.splits));
        match offers {
            Ok(offers) => founder.join(roster, &members, offers, resources, abort_key).map(Some),
            Err(error) => {
                founder.free(resources);
                Err(error)
            }
        }
    }

    /// Returns the requests of all ranks.
    fn exchange_requests(&mut self, request: SplitRequest) -> Result<Vec<SplitRequest>> {
        let SplitRequest { color, key } = request;
        let own = [i64::from(color.is_some()), color.unwrap_or(0) as i64, key as i64];
        let mut all = vec![0; own.len() * self.world()];
        self.gather_all(Operation::Split, &own, &mut all)?;
        let read = |[has_color, color, key]: &[i64; 3]| SplitRequest {
            color: (*has_color != 0).then_some(*color as usize),
            key: *key as usize,
        };
        Ok(all.as_chunks::<3>().0.iter().map(read).collect())
    }

    /// Returns the offers of all ranks.
    fn exchange_offers(
        &mut self,
        offer: &MemberOffer,
        founder: &Founder,
    ) -> Result<Vec<MemberOffer>> {
        let mut own = offer.encode();
        own.resize(OFFER_BYTES, 0);
        let mut all = vec![0u8; OFFER_BYTES * self.world()];
        self.gather_all(Operation::Split, &own, &mut all)?;
        let offers = all.chunks(OFFER_BYTES).enumerate();
        offers.map(|(rank, bytes)| founder.decode_offer(rank, bytes)).collect()
    }
}

/// Ranks with the same color as `own`, in the order of keys, and of ranks if keys are equal.
fn members(requests: &[SplitRequest], own: SplitRequest) -> Vec<usize> {
    let is_member = |rank: &usize| own.color.is_some() && requests[*rank].color == own.color;
    let mut members: Vec<usize> = (0..requests.len()).filter(is_member).collect();
    order::sort_by_key(&mut members, |rank| requests[*rank].key);
    members
}

//! Selection of the backend of a [`DeviceGroup`](super::DeviceGroup): every rank publishes what it
//! supports, and all ranks make the same choice.

use std::fmt;

use crate::base::Rank;
use crate::cuda::nccl::Version;

/// Backend that moves data between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceBackend {
    /// [`Self::Nccl`] if all ranks support it, else [`Self::Staged`].
    #[default]
    Auto,
    /// NCCL, or an error.
    Nccl,
    /// Through host memory: pinned memory, then the `host` backend. Sums have the bits of the host's
    /// sums, and ranks can share a device.
    Staged,
}

impl DeviceBackend {
    const ALL: [Self; 3] = [Self::Auto, Self::Nccl, Self::Staged];
}

/// Facts about the device and NCCL of one rank, which it sends to all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) requested: DeviceBackend,
    /// UUID of the device.
    pub(crate) uuid: u128,
    /// Result of `ncclGetVersion`; 0 where there is no NCCL.
    pub(crate) nccl: u32,
    /// Whether NCCL is configured to let ranks share a device.
    pub(crate) may_share: bool,
}

pub(crate) const OFFER_WORDS: usize = 4;

impl Offer {
    pub(crate) fn encode(&self) -> [i64; OFFER_WORDS] {
        let kinds = self.requested as i64 | i64::from(self.may_share) << 8;
        [kinds, i64::from(self.nccl), (self.uuid >> 64) as i64, self.uuid as i64]
    }

    pub(crate) fn decode([kinds, nccl, high, low]: [i64; OFFER_WORDS]) -> Self {
        Self {
            requested: DeviceBackend::ALL[(kinds & 0xff) as usize % DeviceBackend::ALL.len()],
            may_share: kinds >> 8 != 0,
            nccl: nccl as u32,
            uuid: u128::from(high as u64) << 64 | u128::from(low as u64),
        }
    }
}

/// Reason why NCCL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Missing(Rank),
    Versions([(Rank, Version); 2]),
    SharedDevice([Rank; 2]),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(rank) => write!(f, "rank {rank} has no NCCL"),
            Self::Versions([(one, old), (other, new)]) => {
                write!(f, "rank {one} has NCCL {old}, rank {other} has {new}")
            }
            Self::SharedDevice([one, other]) => {
                write!(f, "ranks {one} and {other} are on the same GPU")
            }
        }
    }
}

/// Backend that all ranks use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Nccl,
    /// Through host memory, as requested or because of an obstacle to NCCL.
    Staged(Option<Obstacle>),
}

/// Reason why no backend can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChoiceRefusal {
    /// Two ranks request different backends.
    BackendMismatch([Rank; 2]),
    /// NCCL is requested but cannot be used.
    Nccl(Obstacle),
}

impl fmt::Display for ChoiceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackendMismatch([one, other]) => {
                write!(f, "ranks {one} and {other} request different device backends")
            }
            Self::Nccl(obstacle) => write!(f, "NCCL cannot be used: {obstacle}"),
        }
    }
}

/// First version of NCCL that lets ranks share a device when it is configured to.
const SHARING_SINCE: u32 = 23_000;

/// Chooses the backend from the offers of all ranks, in rank order; the same on every rank.
pub(crate) fn choose_backend(
    offers: &[Offer],
    name: impl Fn(usize) -> Rank,
) -> Result<Choice, ChoiceRefusal> {
    let wanted = offers.first().map_or(DeviceBackend::Auto, |offer| offer.requested);
    if let Some(other) = offers.iter().position(|offer| offer.requested != wanted) {
        return Err(ChoiceRefusal::BackendMismatch([name(0), name(other)]));
    }
    match (wanted, find_obstacle(offers, name)) {
        (DeviceBackend::Staged, _) => Ok(Choice::Staged(None)),
        (_, None) => Ok(Choice::Nccl),
        (DeviceBackend::Auto, Some(obstacle)) => Ok(Choice::Staged(Some(obstacle))),
        (DeviceBackend::Nccl, Some(obstacle)) => Err(ChoiceRefusal::Nccl(obstacle)),
    }
}

fn find_obstacle(offers: &[Offer], name: impl Fn(usize) -> Rank) -> Option<Obstacle> {
    if let Some(rank) = offers.iter().position(|offer| offer.nccl == 0) {
        return Some(Obstacle::Missing(name(rank)));
    }
    let version = offers.first()?.nccl;
    if let Some(other) = offers.iter().position(|offer| offer.nccl != version) {
        let has = |rank: usize| (name(rank), Version::from_code(offers[rank].nccl));
        return Some(Obstacle::Versions([has(0), has(other)]));
    }
    if SHARING_SINCE <= version && offers.iter().all(|offer| offer.may_share) {
        return None;
    }
    let mut devices: Vec<_> =
        offers.iter().enumerate().map(|(rank, offer)| (offer.uuid, rank)).collect();
    devices.sort_unstable();
    let shared = devices.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
    Some(Obstacle::SharedDevice([name(shared[0].1), name(shared[1].1)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Offer =
        Offer { requested: DeviceBackend::Auto, uuid: 1, nccl: 22_707, may_share: false };

    #[track_caller]
    fn check(offers: &[Offer], expect: Result<Choice, &str>) {
        let decoded = offers.iter().map(|offer| Offer::decode(offer.encode())).collect::<Vec<_>>();
        assert_eq!(decoded, offers, "offers are decoded as they were encoded");
        let chosen = choose_backend(offers, |rank| Rank(rank as u32));
        assert_eq!(chosen.map_err(|refusal| refusal.to_string()), expect.map_err(str::to_owned));
    }

    #[test]
    fn choice_is_nccl_for_own_devices_and_one_version() {
        let other = Offer { uuid: u128::MAX, ..GOOD };
        check(&[GOOD, other], Ok(Choice::Nccl));
        let staged = |offer| Offer { requested: DeviceBackend::Staged, ..offer };
        check(&[staged(GOOD), staged(other)], Ok(Choice::Staged(None)));
    }

    #[test]
    fn choice_names_the_obstacle_to_nccl() {
        let nccl = |offer| Offer { requested: DeviceBackend::Nccl, ..offer };
        let shared = Obstacle::SharedDevice([Rank(0), Rank(1)]);
        check(&[GOOD, GOOD], Ok(Choice::Staged(Some(shared))));
        let message = "NCCL cannot be used: ranks 0 and 1 are on the same GPU";
        check(&[nccl(GOOD), nccl(GOOD)], Err(message));
        let missing = Offer { uuid: 2, nccl: 0, ..GOOD };
        check(&[GOOD, missing], Ok(Choice::Staged(Some(Obstacle::Missing(Rank(1))))));
        let older = Offer { uuid: 2, nccl: 22_104, ..GOOD };
        let message = "NCCL cannot be used: rank 0 has NCCL 2.27.7, rank 1 has 2.21.4";
        check(&[nccl(GOOD), nccl(older)], Err(message));
    }

    #[test]
    fn choice_shares_devices_if_nccl_is_configured_to() {
        let new = Offer { nccl: 23_007, may_share: true, ..GOOD };
        check(&[new, new], Ok(Choice::Nccl));
        let old = Offer { nccl: 22_907, ..new };
        check(&[old, old], Ok(Choice::Staged(Some(Obstacle::SharedDevice([Rank(0), Rank(1)])))));
    }

    #[test]
    fn choice_rejects_different_requests() {
        let other = Offer { requested: DeviceBackend::Staged, uuid: 3, ..GOOD };
        let message = "ranks 0 and 1 request different device backends";
        check(&[GOOD, other], Err(message));
    }
}

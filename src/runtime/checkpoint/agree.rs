//! Agreement of all ranks about a step of a save or of a load: rank 0 collects the reports of
//! all ranks and decides.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::Rank;
use crate::runtime::checkpoint::error::RankPlace;
use crate::runtime::comm::group::Group;
use crate::runtime::error::{Error, Result};

/// Place of a rank of the group.
pub(super) fn place_of(group: &Group, rank: usize) -> RankPlace {
    let job_rank: Rank = group.inner.roster.job_rank(rank);
    RankPlace { rank: job_rank, host: group.placement().host_of(rank).to_owned() }
}

/// Place of this rank.
pub(super) fn own_place(group: &Group) -> RankPlace {
    place_of(group, group.rank())
}

/// Sends a value of every rank to rank 0, which gets all, in the order of the ranks; others get nothing.
pub(super) fn collect<T: Serialize + DeserializeOwned>(group: &Group, value: &T) -> Result<Vec<T>> {
    let own = encode(value);
    let mut lengths = vec![0i64; if group.rank() == 0 { group.world_size() } else { 0 }];
    group.gather(&[own.len() as i64], &mut lengths, 0)?;
    if group.rank() != 0 {
        group.exchange(&[(0, &own[..])], Vec::new())?;
        return Ok(Vec::new());
    }
    let others = lengths.iter().skip(1).map(|length| vec![0u8; *length as usize]);
    let mut others: Vec<Vec<u8>> = others.collect();
    let buffers = others.iter_mut().enumerate().map(|(at, bytes)| (at + 1, &mut bytes[..]));
    group.exchange::<u8>(&[], buffers.collect())?;
    std::iter::once(&own).chain(&others).map(|bytes| decode(bytes)).collect()
}

/// Sends a value of rank 0 to all ranks; the others pass `None`.
pub(super) fn broadcast<T: Serialize + DeserializeOwned>(
    group: &Group,
    value: Option<&T>,
) -> Result<T> {
    let mut bytes = value.map_or_else(Vec::new, encode);
    let mut length = [bytes.len() as i64];
    group.broadcast(&mut length, 0)?;
    bytes.resize(length[0] as usize, 0);
    group.broadcast(&mut bytes, 0)?;
    decode(&bytes)
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("texts and numbers serialize")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|_| {
        Error::BadArgument("a rank has sent a message of another version of remuda".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_0_collects_and_decides() {
        for ranks in [1, 2, 5] {
            let answers = Group::on_threads(ranks, |group| {
                let own = "x".repeat(group.rank() * 10_000);
                let all = collect(group, &(group.rank(), own))?;
                let lengths: Vec<usize> =
                    all.iter().map(|(rank, text)| rank + text.len()).collect();
                broadcast(group, (group.rank() == 0).then_some(&lengths))
            });
            let expect: Vec<usize> = (0..ranks).map(|rank| rank * 10_001).collect();
            assert_eq!(answers.expect("no rank fails"), vec![expect; ranks]);
        }
    }
}

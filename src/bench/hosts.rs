//! Nodes of a job, with the number of ranks on each and of processors that these may use.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;

use crate::runtime::{Error, Group};

/// Words of a set of processors, with 64 processors each.
const WORDS: usize = CpuSet::MAX_CPU / 64;

/// Node of the job, as shown in results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BenchNode {
    /// Name in the hostfile.
    pub name: String,
    /// Number of ranks on the node.
    pub ranks: usize,
    /// Number of processors that its ranks together may use.
    pub processors: usize,
}

/// Processors that one rank may use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UsableProcessors {
    /// Processors that the rank may run on, as bits.
    set: Vec<u64>,
    /// Number of processors that it may keep busy, by its quota.
    count: usize,
}

impl UsableProcessors {
    fn of_this_process() -> Self {
        // On a machine with more processors than the set holds the call fails: the set stays empty.
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let word = |word: usize| {
            let bits = (0..64).filter(|bit| allowed.is_set(64 * word + bit));
            bits.fold(0, |word, bit| word | 1 << bit)
        };
        let count = available_parallelism().map_or(1, NonZeroUsize::get);
        Self { set: (0..WORDS).map(word).collect(), count }
    }
}

/// Collects all nodes, in order; all ranks call it and receive the same result.
pub fn gather_hosts(group: &Group) -> Result<Vec<BenchNode>, Error> {
    let own = UsableProcessors::of_this_process();
    let mut words: Vec<i64> = own.set.iter().map(|word| word.cast_signed()).collect();
    words.push(own.count as i64);
    let mut all = vec![0; words.len() * group.world_size()];
    group.all_gather(&words, &mut all)?;
    let of_rank = |rank: &usize| {
        let words = &all[rank * words.len()..][..words.len()];
        let set = words[..WORDS].iter().map(|word| word.cast_unsigned()).collect();
        UsableProcessors { set, count: words[WORDS] as usize }
    };
    let placement = group.placement();
    let host = |node: usize| {
        let ranks = placement.ranks_of(node);
        let usable: Vec<UsableProcessors> = ranks.iter().map(of_rank).collect();
        let name = placement.host_of(ranks[0]).to_owned();
        BenchNode { name, ranks: ranks.len(), processors: count_processors(&usable) }
    };
    Ok((0..placement.nodes()).map(host).collect())
}

/// Number of processors that the ranks of a node together may use. Ranks may be bound to different
/// processors; a quota applies to all of them together.
fn count_processors(ranks: &[UsableProcessors]) -> usize {
    let size = |set: &[u64]| set.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    let mut union = vec![0; WORDS];
    for rank in ranks {
        union.iter_mut().zip(&rank.set).for_each(|(all, own)| *all |= own);
    }
    let below = ranks.iter().filter(|rank| rank.count < size(&rank.set)).map(|rank| rank.count);
    match (size(&union), below.min()) {
        // No rank knows its set.
        (0, _) => ranks.iter().map(|rank| rank.count).max().unwrap_or(1),
        (all, quota) => quota.map_or(all, |quota| quota.min(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ranks: &[(u64, usize)], expect: usize) {
        let rank = |(word, count): &(u64, usize)| {
            let mut set = vec![0; WORDS];
            set[1] = *word;
            UsableProcessors { set, count: *count }
        };
        let ranks: Vec<UsableProcessors> = ranks.iter().map(rank).collect();
        assert_eq!(count_processors(&ranks), expect);
    }

    #[test]
    fn host_counts_shared_processors_once() {
        check(&[(0b11, 2), (0b11, 2)], 2);
        // Each rank is bound to one processor.
        check(&[(0b01, 1), (0b10, 1)], 2);
        // A quota of two.
        check(&[(0xff, 2), (0xff, 2), (0xff, 2)], 2);
        // The sets are unknown.
        check(&[(0, 4), (0, 4)], 4);
    }

    #[test]
    fn hosts_are_equal_on_every_rank() -> Result<(), Error> {
        let hosts = Group::on_threads(3, gather_hosts)?;
        assert_eq!(hosts[0], hosts[2]);
        assert_eq!((hosts[0].len(), hosts[0][0].ranks), (1, 3));
        let here = available_parallelism().expect("Linux reports it").get();
        assert_eq!(hosts[0][0].processors, here);
        Ok(())
    }
}

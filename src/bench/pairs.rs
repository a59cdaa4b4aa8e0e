//! Bandwidth of every pair of nodes, or of ranks where there is one node, to find slow ones.
//!
//! Pairs are measured in a round-robin tournament: in each round every node (or rank) exchanges
//! data with one other, so n of them take n - 1 rounds instead of n² / 2 separate exchanges.

use super::operands::zeros;
use super::row::PairRow;
use super::sweep::Options;
use super::timing::{Repetitions, Timed};
use crate::base::order;
use crate::runtime::{Error, Group, ReduceOp};

/// Times of all pairs; equal on all ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    /// Names of the nodes or ranks, in order.
    pub names: Vec<String>,
    /// Bytes in each direction.
    pub bytes: u64,
    /// Seconds of one exchange, as a symmetric matrix by rows; 0 on the diagonal.
    seconds: Vec<f64>,
    /// Number of timed exchanges, in the same layout.
    iterations: Vec<i64>,
}

impl Pairs {
    /// Bandwidth in each direction between two nodes or ranks, in GB/s; `None` for one and itself.
    pub fn gbs(&self, left: usize, right: usize) -> Option<f64> {
        let seconds = self.seconds[left * self.names.len() + right];
        (0.0 < seconds).then(|| self.bytes as f64 / seconds / 1e9)
    }

    /// Rows of the document, one for each pair.
    pub fn rows(&self) -> Vec<PairRow> {
        let members = self.names.len();
        let pairs =
            (0..members).flat_map(|left| (left + 1..members).map(move |right| (left, right)));
        let row = |(left, right): (usize, usize)| {
            let busbw_gbs = self.gbs(left, right)?;
            let time_us = self.seconds[left * members + right] * 1e6;
            let iterations = u32::try_from(self.iterations[left * members + right]).ok();
            let (left, right) = (self.names[left].clone(), self.names[right].clone());
            Some(PairRow { left, right, bytes: self.bytes, time_us, busbw_gbs, iterations })
        };
        pairs.filter_map(row).collect()
    }

    /// Rows of the document, the slowest pair first.
    pub fn slowest_first(&self) -> Vec<PairRow> {
        let mut rows = self.rows();
        order::sort_by(&mut rows, |left, right| left.busbw_gbs.total_cmp(&right.busbw_gbs));
        rows
    }
}

/// Pairs of each round: each member is in at most one pair of a round, and each pair in one round.
fn rounds(members: usize) -> Vec<Vec<(usize, usize)>> {
    // Circle method: one member is fixed and the others rotate. With an odd number, the partner of an
    // imaginary member pauses.
    let slots = members.next_multiple_of(2).max(2);
    let round = |turn: usize| {
        let at = |slot: usize| if slot == 0 { 0 } else { 1 + (slot - 1 + turn) % (slots - 1) };
        let pair = |slot: usize| (at(slot), at(slots - 1 - slot));
        let pairs = (0..slots / 2).map(pair).filter(|(left, right)| left.max(right) < &members);
        pairs.map(|(left, right)| (left.min(right), left.max(right))).collect()
    };
    (0..slots - 1).map(round).collect()
}

/// Measures all pairs with messages of the largest size of `options`; all ranks call it.
pub fn measure_pairs(group: &Group, options: &Options) -> Result<Pairs, Error> {
    let bytes = options.sizes.last();
    let placement = group.placement();
    let ranks: Vec<usize> = match placement.nodes() {
        1 => (0..group.world_size()).collect(),
        nodes => (0..nodes).map(|node| placement.ranks_of(node)[0]).collect(),
    };
    let name = |rank: &usize| match placement.nodes() {
        1 => format!("rank {rank}"),
        _ => placement.host_of(*rank).to_owned(),
    };
    let names: Vec<String> = ranks.iter().map(name).collect();
    let mut seconds = vec![0.0; ranks.len() * ranks.len()];
    let mut iterations = vec![0; seconds.len()];
    let own = ranks.iter().position(|rank| *rank == group.rank());
    let data: Vec<u8> = zeros(if own.is_some() { bytes as usize } else { 0 })?;
    let mut received = data.clone();
    for round in rounds(ranks.len()) {
        if let Some((own, other)) = own.and_then(|own| Some((own, partner(&round, own)?))) {
            let timed = time_exchange(group, options, ranks[other], (&data, &mut received))?;
            seconds[own * ranks.len() + other] = timed.seconds;
            iterations[own * ranks.len() + other] = i64::from(timed.iterations);
        }
        group.barrier()?;
    }
    group.all_reduce(&mut seconds, ReduceOp::Sum)?;
    group.all_reduce(&mut iterations, ReduceOp::Sum)?;
    Ok(Pairs { seconds: max_of_both_sides(&seconds, names.len()), iterations, names, bytes })
}

/// Partner of a member in a round; `None`: it pauses.
fn partner(round: &[(usize, usize)], member: usize) -> Option<usize> {
    round.iter().find_map(|(left, right)| match member {
        _ if member == *left => Some(*right),
        _ if member == *right => Some(*left),
        _ => None,
    })
}

/// The longer of the times that the two sides of an exchange have measured: the exchange is complete
/// when it is complete on both sides.
fn max_of_both_sides(seconds: &[f64], members: usize) -> Vec<f64> {
    let at = |left: usize, right: usize| seconds[left * members + right];
    let both = (0..members * members).map(|cell| (cell / members, cell % members));
    both.map(|(left, right)| at(left, right).max(at(right, left))).collect()
}

fn time_exchange(
    group: &Group,
    options: &Options,
    peer: usize,
    (data, received): (&[u8], &mut [u8]),
) -> Result<Timed, Error> {
    let slower = |seconds: f64| {
        let mut peer_seconds = [0.0];
        group.send_recv(&[seconds], peer, &mut peer_seconds, peer)?;
        Ok(seconds.max(peer_seconds[0]))
    };
    let repeats = Repetitions { warmup: options.warmup.max(1), ..options.repetitions() };
    // An exchange synchronizes its two ranks, so no barrier is needed.
    repeats.time(|| Ok(group.send_recv(data, peer, received, peer)?), slower, || Ok(()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bench::backend::Backend;
    use crate::bench::collective::Collective;
    use crate::bench::sizes::{Sizes, Stride};
    use crate::bench::timing::{Average, Iterations};
    use crate::runtime::Dtype;

    #[test]
    fn rounds_contain_each_pair_once() {
        for members in 0..40 {
            let mut pairs = BTreeSet::new();
            for round in rounds(members) {
                let mut busy = BTreeSet::new();
                for (left, right) in round {
                    assert!(left < right && right < members);
                    assert!(busy.insert(left) && busy.insert(right), "{members}");
                    assert!(pairs.insert((left, right)), "{members}");
                }
            }
            assert_eq!(pairs.len(), members * members.saturating_sub(1) / 2, "{members}");
        }
    }

    fn options() -> Options {
        Options {
            collective: Collective::SendRecv,
            backend: Backend::Host,
            sizes: Sizes::new(4096, 4096, Stride::Factor(2)).expect("there is a size"),
            dtypes: vec![Dtype::U8],
            reduce: vec![ReduceOp::Sum],
            root: 0,
            iterations: Iterations::Exactly(3),
            warmup: 1,
            is_checked: false,
            average: Average::Max,
            is_registered: false,
        }
    }

    #[test]
    fn pairs_are_of_ranks_on_one_node_and_of_nodes_on_many() -> Result<(), Error> {
        let here = Group::on_threads(3, |group| measure_pairs(group, &options()))?;
        assert_eq!(here[0], here[2]);
        assert_eq!(here[0].names, ["rank 0", "rank 1", "rank 2"]);
        assert_eq!(here[0].rows().len(), 3);
        assert!(here[0].rows().iter().all(|row| row.iterations == Some(3)));
        assert_eq!(here[0].gbs(1, 1), None);
        assert_eq!(here[0].gbs(1, 2), here[0].gbs(2, 1));

        let groups = Group::threads_on(&[2, 1])?;
        let nodes: Vec<Pairs> = std::thread::scope(|scope| {
            let measure = |group: Group| scope.spawn(move || measure_pairs(&group, &options()));
            let threads: Vec<_> = groups.into_iter().map(measure).collect();
            let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            ended.collect::<Result<_, _>>()
        })?;
        assert_eq!((nodes[0].names.len(), nodes[0].rows().len()), (2, 1));
        Ok(())
    }
}

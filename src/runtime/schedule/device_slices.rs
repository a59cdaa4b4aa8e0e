//! Plan of reductions on devices in the canonical order: which rank sends which data to which rank.
//!
//! Every rank receives all ranks' data of its slice, reduces it, and sends the result to the ranks that
//! need it. Together that transfers as many bytes as a ring. Data that does not fit into the scratch
//! memory is processed in several rounds. Pure: no I/O, no device.

use std::ops::Range;

use crate::cuda::nccl::PeerSlice;
use crate::runtime::schedule::{blocks, slice};

/// Alignment of parts in the scratch memory, in elements; at least one pack of every type.
pub(super) const STRIDE_UNIT: usize = 64;

/// Receivers of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Every rank gets the whole result.
    All,
    /// This rank gets the whole result.
    Root(usize),
    /// Every rank gets the part with its number.
    Parts,
}

/// Plan of one rank for a part of an operation that fits the scratch memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReductionRound {
    /// Ranges of this rank's input to send to the ranks that fold them.
    pub(crate) sends: Vec<PeerSlice>,
    /// Ranges of the scratch memory for all ranks' data of this rank's slice.
    pub(crate) recvs: Vec<PeerSlice>,
    /// Distance in elements between the data of successive ranks in the scratch memory.
    pub(crate) stride: usize,
    /// Number of elements that this rank folds.
    pub(crate) len: usize,
    /// Number of ranks whose data is folded.
    pub(crate) parts: usize,
    /// Whether every rank keeps what it has folded: nothing is sent behind the fold.
    pub(crate) keeps_result: bool,
    /// Ranges of the scratch memory with this rank's result, to send to the ranks that need it.
    pub(crate) result_sends: Vec<PeerSlice>,
    /// Ranges of this rank's output that receive the results of others.
    pub(crate) result_recvs: Vec<PeerSlice>,
}

impl ReductionRound {
    /// Number of elements of scratch memory that the round uses.
    pub(crate) fn scratch(&self) -> usize {
        self.parts * self.stride
    }
}

/// Plans the rounds of an operation that reduces `len` elements (for [`Goal::Parts`], of the part of
/// one rank). In a round, the scratch memory of a rank holds about `scratch_max` elements, and up to
/// one alignment unit more for every rank. All ranks have the same number of rounds.
pub(crate) fn plan_rounds(
    goal: Goal,
    (rank, world): (usize, usize),
    len: usize,
    scratch_max: usize,
) -> impl Iterator<Item = ReductionRound> {
    let chunk = match goal {
        Goal::All | Goal::Root(_) => scratch_max,
        Goal::Parts => scratch_max / world,
    };
    blocks(0..len, chunk.max(1)).map(move |chunk| plan_round(goal, (rank, world), len, &chunk))
}

fn plan_round(
    goal: Goal,
    (rank, world): (usize, usize),
    len: usize,
    chunk: &Range<usize>,
) -> ReductionRound {
    let slice_of = |owner: usize| match goal {
        Goal::All | Goal::Root(_) => {
            let slice = slice(chunk.len(), world, owner);
            chunk.start + slice.start..chunk.start + slice.end
        }
        Goal::Parts => owner * len + chunk.start..owner * len + chunk.end,
    };
    let own_len = slice_of(rank).len();
    let stride = own_len.next_multiple_of(STRIDE_UNIT);
    let owners = (0..world).filter(|owner| !slice_of(*owner).is_empty());
    let owners: Vec<usize> = owners.collect();
    let with_all = |range: &dyn Fn(usize) -> Range<usize>| match own_len {
        0 => Vec::new(),
        _ => (0..world).map(|peer| (peer, range(peer))).collect(),
    };
    let is_receiver = |peer: usize| match goal {
        Goal::All => true,
        Goal::Root(root) => peer == root,
        // A rank needs only its own result.
        Goal::Parts => false,
    };
    let mut result_sends: Vec<PeerSlice> = with_all(&|_| 0..own_len);
    result_sends.retain(|(peer, _)| is_receiver(*peer) || (goal == Goal::Parts && *peer == rank));
    let result_recvs = match goal {
        Goal::Parts => vec![(rank, chunk.clone())],
        _ if is_receiver(rank) => owners.iter().map(|owner| (*owner, slice_of(*owner))).collect(),
        _ => Vec::new(),
    };
    ReductionRound {
        sends: owners.iter().map(|owner| (*owner, slice_of(*owner))).collect(),
        recvs: with_all(&|peer| peer * stride..peer * stride + own_len),
        stride,
        len: own_len,
        parts: world,
        keeps_result: goal == Goal::Parts,
        result_sends,
        result_recvs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements with a text as sum, which shows the order of the additions.
    type Numbers = Vec<String>;

    fn exchange(from: &[(Numbers, Vec<PeerSlice>)], to: &mut [(Numbers, Vec<PeerSlice>)]) {
        for (receiver, (numbers, recvs)) in to.iter_mut().enumerate() {
            for (sender, range) in recvs.iter() {
                let input = &from[*sender];
                let found: Vec<_> = input.1.iter().filter(|(peer, _)| *peer == receiver).collect();
                assert_eq!(found.len(), 1, "{sender} sends {receiver} one piece");
                assert_eq!(found[0].1.len(), range.len());
                numbers[range.clone()].clone_from_slice(&input.0[found[0].1.clone()]);
            }
        }
        let sent: usize = from.iter().map(|(_, pieces)| pieces.len()).sum();
        let received: usize = to.iter().map(|(_, pieces)| pieces.len()).sum();
        assert_eq!(sent, received, "every piece that is sent is received");
    }

    /// Runs all rounds; returns the output of every rank.
    fn run(goal: Goal, world: usize, len: usize, scratch_max: usize) -> Vec<Numbers> {
        let len_all = if goal == Goal::Parts { world * len } else { len };
        let letters = |rank: usize| (0..len_all).map(move |at| format!("{rank}:{at}")).collect();
        let inputs: Vec<Numbers> = (0..world).map(letters).collect();
        let mut outputs = match goal {
            Goal::Parts => vec![vec![String::new(); len]; world],
            _ => inputs.clone(),
        };
        let of_rank = |rank| plan_rounds(goal, (rank, world), len, scratch_max).collect::<Vec<_>>();
        let all: Vec<Vec<ReductionRound>> = (0..world).map(of_rank).collect();
        assert!(all.iter().all(|turns| turns.len() == all[0].len()));
        for (at, _) in all[0].iter().enumerate() {
            let side =
                |numbers: &Numbers, pieces: &Vec<PeerSlice>| (numbers.clone(), pieces.clone());
            let turn = |rank: usize| &all[rank][at];
            let gives: Vec<_> = (0..world).map(|r| side(&inputs[r], &turn(r).sends)).collect();
            let empty = |rank: usize| vec![String::new(); turn(rank).scratch()];
            let mut scratch: Vec<_> =
                (0..world).map(|r| (empty(r), turn(r).recvs.clone())).collect();
            exchange(&gives, &mut scratch);
            for (rank, (scratch, pieces)) in scratch.iter_mut().enumerate() {
                let ReductionRound { stride, len, result_sends, .. } = turn(rank);
                assert!(*stride * world <= scratch_max + world * STRIDE_UNIT);
                for i in 0..*len {
                    let of = |peer: usize| scratch[peer * stride + i].clone();
                    scratch[i] = (0..world).map(of).collect::<Vec<_>>().join("+");
                }
                pieces.clone_from(result_sends);
            }
            let mut places: Vec<_> =
                (0..world).map(|r| side(&outputs[r], &turn(r).result_recvs)).collect();
            exchange(&scratch, &mut places);
            outputs = places.into_iter().map(|(numbers, _)| numbers).collect();
        }
        outputs
    }

    fn sum(world: usize, at: usize) -> String {
        (0..world).map(|rank| format!("{rank}:{at}")).collect::<Vec<_>>().join("+")
    }

    #[test]
    fn rounds_reduce_to_all_ranks() {
        for (world, len, scratch_max) in
            [(1, 3, 100), (2, 0, 64), (3, 1, 64), (3, 700, 256), (5, 640, 640)]
        {
            let expect: Numbers = (0..len).map(|at| sum(world, at)).collect();
            let found = run(Goal::All, world, len, scratch_max);
            assert!(found.iter().all(|numbers| *numbers == expect), "{world} ranks, {len}");
        }
    }

    #[test]
    fn rounds_reduce_to_the_root_alone() {
        let found = run(Goal::Root(1), 3, 300, 128);
        assert_eq!(found[1], (0..300).map(|at| sum(3, at)).collect::<Numbers>());
        assert_eq!(found[2], (0..300).map(|at| format!("2:{at}")).collect::<Numbers>());
    }

    #[test]
    fn rounds_reduce_one_part_to_each_rank() {
        for (world, part, scratch_max) in [(1, 5, 4), (2, 0, 64), (4, 100, 120), (3, 65, 1000)] {
            let found = run(Goal::Parts, world, part, scratch_max);
            for (rank, numbers) in found.iter().enumerate() {
                let expect: Numbers = (0..part).map(|at| sum(world, rank * part + at)).collect();
                assert_eq!(*numbers, expect, "rank {rank} of {world}");
            }
        }
    }
}

//! Assembly of the index from what every rank has written, as a function of data.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::base::Rank;
use crate::base::order;
use crate::runtime::checkpoint::digest::BlockDigest;
use crate::runtime::checkpoint::error::{ProblemKind, RankProblem};
use crate::runtime::checkpoint::index::{
    CheckpointIndex, IndexedFile, IndexedPiece, IndexedTensor,
};
use crate::runtime::checkpoint::names::shard_name;
use crate::runtime::checkpoint::shard::ShardContent;
use crate::runtime::checkpoint::state::SavedState;
use crate::runtime::checkpoint::tensor::{TensorInfo, TensorPiece, dtype_name};
use crate::runtime::dtype::element::Dtype;

/// Largest number of problems that are listed.
const PROBLEMS_MAX: usize = 8;

/// What a rank has written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Contribution {
    /// Digest of its state besides tensors, which must be equal on all ranks.
    pub(super) state: [u8; 32],
    /// Size of its file; 0 if it has none.
    pub(super) bytes: u64,
    pub(super) blocks: Vec<BlockDigest>,
    pub(super) pieces: Vec<WrittenPiece>,
}

/// Piece that a rank has written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WrittenPiece {
    name: String,
    dtype: u8,
    shape: Vec<usize>,
    range: Range<usize>,
    offset: u64,
}

impl Contribution {
    /// Describes the file of a rank, with its digests; without elements there is no file.
    pub(super) fn new(
        state: &SavedState,
        pieces: &[TensorPiece<'_>],
        file: Option<(&ShardContent<'_>, &[BlockDigest])>,
    ) -> Self {
        let written = |piece: &TensorPiece<'_>, offset| WrittenPiece {
            name: piece.tensor.name.clone(),
            dtype: piece.tensor.dtype as u8,
            shape: piece.tensor.shape.clone(),
            range: piece.range.clone(),
            offset,
        };
        // Empty pieces announce tensors.
        let empty = pieces.iter().filter(|piece| piece.range.is_empty());
        let mut described: Vec<_> = empty.map(|piece| written(piece, 0)).collect();
        let (mut bytes, mut blocks) = (0, Vec::new());
        if let Some((content, digests)) = file {
            described.extend(content.pieces.iter().map(|(offset, piece)| written(piece, *offset)));
            bytes = content.bytes();
            blocks = digests.to_vec();
        }
        Self { state: state_digest(state), bytes, blocks, pieces: described }
    }
}

/// Digest of the state besides tensors.
fn state_digest(state: &SavedState) -> [u8; 32] {
    use sha2::Digest as _;
    let text = serde_json::to_string(state).expect("texts and numbers have a JSON form");
    sha2::Sha256::digest(text).into()
}

/// Piece of a tensor and its rank.
struct Owned {
    rank: usize,
    piece: IndexedPiece,
}

/// Joins the contributions of all ranks, in the order of their ranks. Problems name a rank of the group.
pub(super) fn assemble(
    state: &SavedState,
    block_bytes: u64,
    contributions: &[Contribution],
) -> Result<CheckpointIndex, Vec<RankProblem>> {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    let mut tensors: BTreeMap<&str, (&WrittenPiece, usize, Vec<Owned>)> = BTreeMap::new();
    for (rank, contribution) in contributions.iter().enumerate() {
        if contribution.state != state_digest(state) {
            problems
                .push(problem(rank, "the state besides the tensors differs from that of rank 0"));
        }
        for written in &contribution.pieces {
            let (first, of, pieces) =
                tensors.entry(&written.name).or_insert_with(|| (written, rank, Vec::new()));
            if (first.dtype, &first.shape) != (written.dtype, &written.shape) {
                let (own, other) = (show(written), show(first));
                problems.push(problem(rank, format!("{own} is {other} on rank {of}")));
            }
            if !written.range.is_empty() {
                let Range { start, end } = written.range;
                let piece = IndexedPiece { start, end, file: files.len(), offset: written.offset };
                pieces.push(Owned { rank, piece });
            }
        }
        if 0 < contribution.bytes {
            let blocks = contribution.blocks.clone();
            files.push(IndexedFile { name: shard_name(rank), bytes: contribution.bytes, blocks });
        }
    }
    let mut indexed = BTreeMap::new();
    for (name, (first, rank, mut pieces)) in tensors {
        order::sort_by_key(&mut pieces, |owned| owned.piece.start);
        if let Err(found) = check_cover(name, first.shape.iter().product(), rank, &pieces) {
            problems.push(found);
        }
        let dtype = Dtype::from_code(first.dtype).map_or("", dtype_name).to_owned();
        let pieces = pieces.into_iter().map(|owned| owned.piece).collect();
        let tensor = IndexedTensor { dtype, shape: first.shape.clone(), pieces };
        indexed.insert(name.to_owned(), tensor);
    }
    problems.truncate(PROBLEMS_MAX);
    let index = CheckpointIndex { state: state.clone(), block_bytes, files, tensors: indexed };
    if problems.is_empty() { Ok(index) } else { Err(problems) }
}

/// Checks that sorted pieces contain every element exactly once; `rank` has announced the tensor.
fn check_cover(
    name: &str,
    elements: usize,
    rank: usize,
    pieces: &[Owned],
) -> Result<(), RankProblem> {
    let missing = |rank, start, end| {
        let text = format!("elements {start}..{end} of `{name}` are in no rank's pieces");
        Err(problem(rank, text))
    };
    let (mut next, mut before) = (0, rank);
    for Owned { rank, piece } in pieces {
        if next < piece.start {
            return missing(before, next, piece.start);
        }
        if piece.start < next {
            let end = next.min(piece.end);
            let (start, other) = (piece.start, before);
            let of =
                if other == *rank { "this rank, too".to_owned() } else { format!("rank {other}") };
            let text = format!("elements {start}..{end} of `{name}` are in a piece of {of}");
            return Err(problem(*rank, text));
        }
        (next, before) = (piece.end, *rank);
    }
    if next < elements { missing(before, next, elements) } else { Ok(()) }
}

fn show(written: &WrittenPiece) -> TensorInfo {
    let dtype = Dtype::from_code(written.dtype).unwrap_or(Dtype::U8);
    TensorInfo { name: written.name.clone(), dtype, shape: written.shape.clone() }
}

fn problem(rank: usize, text: impl Into<String>) -> RankProblem {
    let kind = ProblemKind::Pieces;
    RankProblem { rank: Rank(rank as u32), host: String::new(), kind, text: text.into() }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Contribution of a rank with one `f32` piece for each range of `a`.
    fn contribution(elements: usize, ranges: &[Range<usize>]) -> Contribution {
        let values = vec![0.0f32; elements];
        let piece = |range: &Range<usize>| {
            TensorPiece::new("a", &[elements], range.clone(), &values[range.clone()])
        };
        let pieces: Vec<_> = ranges.iter().map(piece).collect();
        let state = SavedState::default();
        let content = ShardContent::new(&state, 0, &pieces);
        let has_file = ranges.iter().any(|range| !range.is_empty());
        let digests = vec![BlockDigest::of(b""); content.bytes().div_ceil(1 << 20) as usize];
        Contribution::new(&state, &pieces, has_file.then_some((&content, &digests)))
    }

    fn assembled(contributions: &[Contribution]) -> Result<CheckpointIndex, Vec<String>> {
        let found = assemble(&SavedState::default(), 1 << 20, contributions);
        let show = |found: &RankProblem| format!("{}: {}", found.rank, found.text);
        found.map_err(|problems| problems.iter().map(show).collect())
    }

    #[test]
    fn overlaps_and_gaps_name_their_ranks() {
        #[track_caller]
        fn check(ranges: &[&[Range<usize>]], expect: &str) {
            let all: Vec<_> = ranges.iter().map(|ranges| contribution(10, ranges)).collect();
            assert_eq!(assembled(&all), Err(vec![expect.to_owned()]));
        }
        let gap = "1: elements 6..7 of `a` are in no rank's pieces";
        check(&[&[0..3], &[3..6], &[7..10]], gap);
        check(&[&[0..3, 3..8]], "0: elements 8..10 of `a` are in no rank's pieces");
        check(&[&[], &[0..0]], "1: elements 0..10 of `a` are in no rank's pieces");
        check(&[&[0..5], &[3..10]], "1: elements 3..5 of `a` are in a piece of rank 0");
        check(&[&[0..10], &[0..10]], "1: elements 0..10 of `a` are in a piece of rank 0");
        check(&[&[0..5, 4..10]], "0: elements 4..5 of `a` are in a piece of this rank, too");
    }

    #[test]
    fn contradictions_of_ranks_are_found() {
        let mut other = contribution(10, &[5..10]);
        other.pieces[0].shape = vec![2, 5];
        let found = assembled(&[contribution(10, &[0..5]), other]);
        let expect = "1: `a` (f32 [2, 5]) is `a` (f32 [10]) on rank 0";
        assert_eq!(found, Err(vec![expect.to_owned()]));
        let mut other = contribution(10, &[5..10]);
        other.state = [0; 32];
        let found = assembled(&[contribution(10, &[0..5]), other]);
        let expect = "1: the state besides the tensors differs from that of rank 0";
        assert_eq!(found, Err(vec![expect.to_owned()]));
    }

    proptest! {
        /// Pieces that cover a tensor give a valid index, in whatever order and on whatever ranks they are.
        #[test]
        fn any_cut_of_a_tensor_is_complete(
            cuts in prop::collection::vec(0usize..=40, 0..6),
            owners in prop::collection::vec(0usize..4, 7),
        ) {
            let mut cuts = cuts;
            cuts.extend([0, 40]);
            cuts.sort_unstable();
            let mut ranges = vec![Vec::new(); 4];
            for (pair, owner) in cuts.windows(2).zip(owners).rev() {
                ranges[owner].push(pair[0]..pair[1]);
            }
            let all: Vec<_> = ranges.iter().map(|ranges| contribution(40, ranges)).collect();
            let index = assembled(&all);
            prop_assert!(index.is_ok(), "{:?}", index);
            prop_assert_eq!(index.expect("just checked").check(), Ok(()));
        }
    }
}

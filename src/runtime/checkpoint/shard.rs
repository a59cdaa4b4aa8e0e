//! File of a rank: safetensors, whose header is computed here so that the values need not be copied.

use serde_json::{Map, Value, json};

use crate::base::order;
use crate::runtime::checkpoint::names::piece_name;
use crate::runtime::checkpoint::state::SavedState;
use crate::runtime::checkpoint::tensor::{TensorPiece, dtype_name};

/// Alignment of the values in a file.
const ALIGNMENT: usize = 64;
/// Entries of the metadata, by which a file is recognized if it is in the wrong place.
const STEP: &str = "remuda.step";
const RANK: &str = "remuda.rank";

/// Content of a rank's file, as parts that follow each other.
#[derive(Debug)]
pub(super) struct ShardContent<'a> {
    header: Vec<u8>,
    /// Pieces with elements, in the order of the file, with their offsets.
    pub(super) pieces: Vec<(u64, &'a TensorPiece<'a>)>,
}

impl<'a> ShardContent<'a> {
    /// Lays out the pieces of a rank; wide types are first, so that all values are aligned.
    pub(super) fn new(state: &SavedState, rank: usize, pieces: &'a [TensorPiece<'a>]) -> Self {
        let mut pieces: Vec<_> = pieces.iter().filter(|piece| !piece.range.is_empty()).collect();
        order::sort_by_key(&mut pieces, |piece| std::cmp::Reverse(piece.tensor.dtype.bytes()));
        let metadata = json!({ STEP: state.step.to_string(), RANK: rank.to_string() });
        let mut entries = Map::from_iter([("__metadata__".to_owned(), metadata)]);
        let mut offsets = Vec::with_capacity(pieces.len());
        let mut end = 0;
        for piece in &pieces {
            let start = end;
            end += piece.bytes.len();
            offsets.push(start);
            let TensorPiece { tensor, range, .. } = piece;
            let elements = tensor.elements();
            let is_whole = range.len() == elements;
            let shape = if is_whole { tensor.shape.clone() } else { vec![range.len()] };
            let entry = json!({
                "dtype": dtype_name(tensor.dtype), "shape": shape, "data_offsets": [start, end],
            });
            entries.insert(piece_name(&tensor.name, range, elements), entry);
        }
        let header = encode_header(&Value::Object(entries));
        let place = |offset: usize| (header.len() + offset) as u64;
        let pieces = offsets.into_iter().map(place).zip(pieces).collect();
        Self { header, pieces }
    }

    /// The bytes of the file.
    pub(super) fn parts(&self) -> Vec<&[u8]> {
        let values = self.pieces.iter().map(|(_, piece)| piece.bytes);
        std::iter::once(&self.header[..]).chain(values).collect()
    }

    /// Size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.parts().iter().map(|part| part.len() as u64).sum()
    }
}

/// Header with its length before it and blanks after it.
pub(super) fn encode_header(entries: &Value) -> Vec<u8> {
    let text = entries.to_string();
    let length = size_of::<u64>();
    let padded = (length + text.len()).next_multiple_of(ALIGNMENT) - length;
    let mut header = (padded as u64).to_le_bytes().to_vec();
    header.extend_from_slice(text.as_bytes());
    header.resize(length + padded, b' ');
    header
}

/// Step and rank of the file that begins with these bytes, if it is one of a checkpoint.
pub(super) fn origin(beginning: &[u8]) -> Option<(u64, usize)> {
    let (length, rest) = beginning.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header: Value = serde_json::from_slice(rest.get(..length)?).ok()?;
    let metadata = header.get("__metadata__")?;
    let number = |name: &str| metadata.get(name)?.as_str()?.parse::<u64>().ok();
    Some((number(STEP)?, number(RANK)? as usize))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use safetensors::SafeTensors;

    use super::*;
    use crate::runtime::dtype::half::Bf16;

    #[test]
    fn shard_is_read_by_safetensors() {
        let (half, wide) = ([Bf16::ONE; 3], [1.0f32, 2.0, 3.0, 4.0]);
        let pieces = [
            TensorPiece::new("a.weight", &[3], 0..3, &half),
            TensorPiece::new("b.weight", &[3, 4], 4..8, &wide),
            TensorPiece::new("b.weight", &[3, 4], 0..0, &[0f32; 0]),
            TensorPiece::new("a.weight/exp_avg", &[2, 2], 0..4, &wide),
        ];
        let state = SavedState { step: 12, ..SavedState::default() };
        let content = ShardContent::new(&state, 3, &pieces);
        let file = content.parts().concat();
        assert_eq!(content.bytes(), file.len() as u64);
        assert_eq!(origin(&file), Some((12, 3)));
        let read = SafeTensors::deserialize(&file).expect("it is valid");
        let mut names = read.names();
        names.sort_unstable();
        assert_eq!(names, ["a.weight", "a.weight/exp_avg", "b.weight[4..8]"]);
        let part = read.tensor("b.weight[4..8]").expect("it is there");
        assert_eq!((part.shape(), part.data()), (&[4][..], bytemuck::cast_slice(&wide)));
        assert_eq!(read.tensor("a.weight/exp_avg").expect("it is there").shape(), [2, 2]);
        for (offset, piece) in &content.pieces {
            let start = *offset as usize;
            assert_eq!(&file[start..start + piece.bytes.len()], piece.bytes);
            assert!(offset.is_multiple_of(piece.tensor.dtype.bytes() as u64));
        }
    }

    proptest! {
        #[test]
        fn other_bytes_have_no_origin(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(origin(&bytes), None);
        }
    }
}

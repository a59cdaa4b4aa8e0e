//! The index of a checkpoint: its tensors, and where their pieces are.
//!
//! `index.json` begins with the format and the SHA-256 of the whole file, computed with zeros in place of the
//! digest. What it lists is checked before it is used: names without paths, pieces inside of files, every
//! element of a tensor exactly once.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::runtime::checkpoint::digest::{BlockDigest, blocks_of};
use crate::runtime::checkpoint::names::is_shard_name;
use crate::runtime::checkpoint::state::SavedState;
use crate::runtime::checkpoint::tensor::{TensorInfo, elements_of, parse_dtype};

/// Format of directories, without its version.
const FORMAT: &str = "remuda-checkpoint";
/// Version of new directories. Newer ones are refused.
pub(super) const VERSION: u32 = 1;
/// Placeholder for the digest while the digest of the file is computed.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Content of the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CheckpointIndex {
    pub(super) state: SavedState,
    /// Size of the blocks of the files, each of which has a digest.
    pub(super) block_bytes: u64,
    pub(super) files: Vec<IndexedFile>,
    pub(super) tensors: BTreeMap<String, IndexedTensor>,
}

/// File of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct IndexedFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) blocks: Vec<BlockDigest>,
}

/// Tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct IndexedTensor {
    /// Name of the type in safetensors.
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Pieces in the order of their ranges.
    pub(super) pieces: Vec<IndexedPiece>,
}

/// Place of a range of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IndexedPiece {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Position of the file in the list of files.
    pub(super) file: usize,
    /// Position of the first element in the file, in bytes.
    pub(super) offset: u64,
}

impl IndexedPiece {
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Reason why the bytes of an index cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexError {
    /// The file was changed, or is another one.
    Damaged(String),
    /// The format is one of later builds.
    Newer(String),
}

/// Beginning of an index, which later formats have, too.
#[derive(Deserialize)]
struct Head {
    format: String,
}

impl CheckpointIndex {
    /// Returns the content of the file.
    pub(super) fn encode(&self) -> String {
        let content = serde_json::to_string(self).expect("texts and numbers have a JSON form");
        let content = content.strip_prefix('{').expect("a structure is an object");
        let mut text = head(VERSION) + NO_DIGEST + "\"," + content;
        let digest = BlockDigest::of(text.as_bytes()).to_string();
        text.replace_range(digest_range(), &digest);
        text
    }

    /// Reads the content of a file.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, IndexError> {
        let damaged = |reason: &str| IndexError::Damaged(reason.to_owned());
        if let Some(newer) = newer_format(bytes) {
            return Err(IndexError::Newer(newer));
        }
        if !bytes.starts_with(head(VERSION).as_bytes()) {
            return Err(damaged("it is not the index of a checkpoint"));
        }
        let digest = bytes.get(digest_range()).ok_or_else(|| damaged("it was truncated"))?;
        let mut blank = bytes.to_vec();
        blank[digest_range()].copy_from_slice(NO_DIGEST.as_bytes());
        if BlockDigest::of(&blank).to_string().as_bytes() != digest {
            return Err(damaged("checksum mismatch: it was changed after it was saved"));
        }
        let index: Self = serde_json::from_slice(bytes)
            .map_err(|error| IndexError::Damaged(format!("it cannot be parsed: {error}")))?;
        index.check().map_err(IndexError::Damaged)?;
        Ok(index)
    }

    /// Tensor of this name.
    pub(super) fn info(&self, name: &str) -> Option<TensorInfo> {
        let tensor = self.tensors.get(name)?;
        let dtype = parse_dtype(&tensor.dtype).expect("types are checked");
        Some(TensorInfo { name: name.to_owned(), dtype, shape: tensor.shape.clone() })
    }

    /// Tensors with pieces in a range of bytes of a file.
    pub(super) fn tensors_in(&self, file: usize, bytes: &Range<u64>) -> Vec<String> {
        let touches = |tensor: &IndexedTensor| {
            let size = element_bytes(tensor);
            tensor.pieces.iter().any(|piece| {
                let end = piece.offset + piece.range().len() as u64 * size;
                piece.file == file && piece.offset < bytes.end && bytes.start < end
            })
        };
        let found = self.tensors.iter().filter(|(_, tensor)| touches(tensor));
        found.map(|(name, _)| name.clone()).collect()
    }

    /// Checks that all places exist and that the pieces of every tensor are the tensor.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.block_bytes == 0 {
            return Err("its blocks have no bytes".to_owned());
        }
        for file in &self.files {
            let IndexedFile { name, bytes, blocks } = file;
            if !is_shard_name(name) {
                return Err(format!("`{}` is not a name of a file", name.escape_default()));
            }
            if blocks.len() as u64 != blocks_of(*bytes, self.block_bytes) {
                return Err(format!("`{name}` has another number of blocks"));
            }
        }
        self.tensors.iter().try_for_each(|(name, tensor)| self.check_tensor(name, tensor))
    }

    fn check_tensor(&self, name: &str, tensor: &IndexedTensor) -> Result<(), String> {
        let shown = name.escape_default();
        if parse_dtype(&tensor.dtype).is_none() {
            return Err(format!(
                "`{shown}` has the unknown type `{}`",
                tensor.dtype.escape_default()
            ));
        }
        let elements = elements_of(&tensor.shape);
        let elements = elements.ok_or_else(|| format!("`{shown}` has too many elements"))?;
        let mut next = 0;
        for piece in &tensor.pieces {
            let is_next = piece.start == next && next < piece.end && piece.end <= elements;
            let bytes = |end: usize| (end - piece.start) as u64 * element_bytes(tensor);
            let end = is_next.then(|| piece.offset.checked_add(bytes(piece.end))).flatten();
            let file = self.files.get(piece.file);
            if file.zip(end).is_none_or(|(file, end)| file.bytes < end) {
                return Err(format!("the pieces of `{shown}` are not the tensor"));
            }
            next = piece.end;
        }
        if next == elements { Ok(()) } else { Err(format!("`{shown}` is incomplete")) }
    }
}

/// Size of an element of a tensor whose type is known.
pub(super) fn element_bytes(tensor: &IndexedTensor) -> u64 {
    parse_dtype(&tensor.dtype).map_or(0, |dtype| dtype.bytes() as u64)
}

/// Beginning of an index, up to its digest.
fn head(version: u32) -> String {
    format!(r#"{{"format":"{FORMAT}/{version}","sha256":""#)
}

fn digest_range() -> Range<usize> {
    let start = head(VERSION).len();
    start..start + NO_DIGEST.len()
}

/// Format of an index that is newer than [`VERSION`].
fn newer_format(bytes: &[u8]) -> Option<String> {
    let head: Head = serde_json::from_slice(bytes).ok()?;
    let version = head.format.strip_prefix(FORMAT)?.strip_prefix('/')?;
    let version: u32 = version.parse().ok()?;
    (VERSION < version).then_some(head.format)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> CheckpointIndex {
        let file = |name: &str, bytes: u64| IndexedFile {
            name: name.to_owned(),
            bytes,
            blocks: vec![BlockDigest::of(name.as_bytes()); bytes.div_ceil(64) as usize],
        };
        let piece = |start, end, file, offset| IndexedPiece { start, end, file, offset };
        let tensor = |dtype: &str, shape: &[usize], pieces| IndexedTensor {
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            pieces,
        };
        CheckpointIndex {
            state: SavedState { step: 12, model: "m".to_owned(), ..SavedState::default() },
            block_bytes: 64,
            files: vec![file("rank-00000.safetensors", 100), file("rank-00003.safetensors", 64)],
            tensors: BTreeMap::from([
                (
                    "a".to_owned(),
                    tensor("F32", &[2, 3], vec![piece(0, 4, 0, 8), piece(4, 6, 1, 0)]),
                ),
                ("b".to_owned(), tensor("BF16", &[0], Vec::new())),
                ("c".to_owned(), tensor("U8", &[], vec![piece(0, 1, 1, 63)])),
            ]),
        }
    }

    #[test]
    fn index_is_read_from_its_text() {
        let index = sample();
        let text = index.encode();
        assert!(text.starts_with(r#"{"format":"remuda-checkpoint/1","sha256":""#), "{text}");
        assert_eq!(CheckpointIndex::decode(text.as_bytes()), Ok(index.clone()));
        assert_eq!(index.tensors_in(1, &(7..8)), ["a"]);
        assert_eq!(index.tensors_in(1, &(8..63)), [""; 0]);
        assert_eq!(index.tensors_in(1, &(0..64)), ["a", "c"]);
    }

    /// A change of this text that earlier builds misread needs a new [`VERSION`].
    #[test]
    fn index_matches_golden_text_of_version_1() {
        let expect = concat!(
            r#"{"format":"remuda-checkpoint/1","#,
            r#""sha256":"191e930561580bf8acdbd4f32cccce6d0a0eacc8f3dacc3c48ba2312d3272cf5","#,
            r#""state":{"step":12,"model":"m","data":null,"division":null,"optimizer":"","#,
            r#""optimizer_settings":null,"schedule":null,"loss_scale":null,"random":null,"#,
            r#""client":null},"block_bytes":64,"#,
            r#""files":[{"name":"rank-00000.safetensors","bytes":100,"blocks":["#,
            r#""77a6335d13b0000b431d05de92b3f64d940c766bb3c16422a211ac9b00f907a5","#,
            r#""77a6335d13b0000b431d05de92b3f64d940c766bb3c16422a211ac9b00f907a5"]},"#,
            r#"{"name":"rank-00003.safetensors","bytes":64,"blocks":["#,
            r#""0401a24b1b61d88e837db87bf8ebd0fd6286bbb1e93feb27d176241ee59a976c"]}],"#,
            r#""tensors":{"a":{"dtype":"F32","shape":[2,3],"pieces":["#,
            r#"{"start":0,"end":4,"file":0,"offset":8},{"start":4,"end":6,"file":1,"offset":0}]},"#,
            r#""b":{"dtype":"BF16","shape":[0],"pieces":[]},"#,
            r#""c":{"dtype":"U8","shape":[],"pieces":[{"start":0,"end":1,"file":1,"offset":63}]}}}"#,
        );
        assert_eq!(sample().encode(), expect);
    }

    #[test]
    fn newer_format_is_recognized() {
        let text = sample().encode().replacen("/1\"", "/2\"", 1);
        let newer = IndexError::Newer("remuda-checkpoint/2".to_owned());
        assert_eq!(CheckpointIndex::decode(text.as_bytes()), Err(newer));
        let other = CheckpointIndex::decode(br#"{"metadata":{},"weight_map":{}}"#);
        let damaged = IndexError::Damaged("it is not the index of a checkpoint".to_owned());
        assert_eq!(other, Err(damaged));
    }

    #[test]
    fn every_flipped_bit_of_an_index_is_found() {
        let text = sample().encode().into_bytes();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(CheckpointIndex::decode(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..text.len() {
            assert!(CheckpointIndex::decode(&text[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn listed_places_are_checked() {
        #[track_caller]
        fn check(change: impl Fn(&mut CheckpointIndex), expect: &str) {
            let mut index = sample();
            change(&mut index);
            assert_eq!(index.check(), Err(expect.to_owned()));
            // The digest is that of the changed index, so only the check finds it.
            let error = CheckpointIndex::decode(index.encode().as_bytes());
            assert_eq!(error, Err(IndexError::Damaged(expect.to_owned())));
        }
        fn tensor<'a>(index: &'a mut CheckpointIndex, name: &str) -> &'a mut IndexedTensor {
            index.tensors.get_mut(name).expect("a tensor of the sample")
        }
        let outside = "`../rank-00000.safetensors` is not a name of a file";
        check(|index| index.files[0].name.insert_str(0, "../"), outside);
        check(|index| index.block_bytes = 0, "its blocks have no bytes");
        let blocks = "`rank-00000.safetensors` has another number of blocks";
        check(|index| index.files[0].bytes = 129, blocks);
        check(|index| tensor(index, "a").dtype = "F8".to_owned(), "`a` has the unknown type `F8`");
        check(|index| tensor(index, "a").shape = vec![usize::MAX; 2], "`a` has too many elements");
        check(|index| tensor(index, "a").shape = vec![7], "`a` is incomplete");
        let pieces = "the pieces of `a` are not the tensor";
        check(|index| tensor(index, "a").pieces[1].start = 3, pieces);
        check(|index| tensor(index, "a").pieces[1].end = 7, pieces);
        check(|index| tensor(index, "a").pieces[1].end = 4, pieces);
        check(|index| tensor(index, "a").pieces[1].file = 2, pieces);
        check(|index| tensor(index, "a").pieces[1].offset = 57, pieces);
        check(|index| tensor(index, "a").pieces[1].offset = u64::MAX, pieces);
    }

    proptest! {
        /// Any bytes are an error, never a panic.
        #[test]
        fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(CheckpointIndex::decode(&bytes).is_err());
        }
    }
}

//! Digests of the blocks of a file. A reader of a range reads and checks only the blocks that it touches.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Default size of a block in bytes.
pub(super) const BLOCK_BYTES: u64 = 4 << 20;

/// SHA-256 of a block, as hexadecimal text in documents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockDigest([u8; 32]);

impl BlockDigest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for BlockDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlockDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BlockDigest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let nibble = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(()),
        };
        let mut digest = [0; 32];
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(()) };
        if pairs.len() != digest.len() {
            return Err(());
        }
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(digest))
    }
}

impl Serialize for BlockDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlockDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|()| D::Error::custom("a digest is not 64 hexadecimal digits"))
    }
}

/// Number of blocks of a file.
pub(super) fn blocks_of(bytes: u64, block_bytes: u64) -> u64 {
    bytes.div_ceil(block_bytes)
}

/// Digests of the blocks of a file that consists of these parts.
pub(super) fn digest_blocks(parts: &[&[u8]], block_bytes: u64) -> Vec<BlockDigest> {
    let mut digests = Vec::new();
    let mut digest = Sha256::new();
    let mut room = block_bytes;
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(room as usize));
            digest.update(now);
            room -= now.len() as u64;
            rest = later;
            if room == 0 {
                digests.push(BlockDigest(digest.finalize_reset().into()));
                room = block_bytes;
            }
        }
    }
    if room < block_bytes {
        digests.push(BlockDigest(digest.finalize().into()));
    }
    digests
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digest_is_read_from_its_text() {
        let digest = BlockDigest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        for bad in [&text[1..], &text.to_uppercase(), "", &text.replace('b', "g")] {
            assert_eq!(bad.parse::<BlockDigest>(), Err(()), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parts_have_the_digests_of_their_whole(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            block_bytes in 1u64..50,
        ) {
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let whole = parts.concat();
            let expect: Vec<_> = whole.chunks(block_bytes as usize).map(BlockDigest::of).collect();
            prop_assert_eq!(blocks_of(whole.len() as u64, block_bytes), expect.len() as u64);
            prop_assert_eq!(digest_blocks(&slices, block_bytes), expect);
        }
    }
}
